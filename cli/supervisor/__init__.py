"""`tokenmill up`: starts the processes of one machine in order, restarts those that crash, drains them at the end."""
