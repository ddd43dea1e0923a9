"""`tokenmill doctor`: is this machine fit to run a fleet, and if not, what to do."""
