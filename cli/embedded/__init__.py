"""PostgreSQL and Valkey as child processes: started, adopted after a crash, and stopped, as root or not."""
