"""What keeps the fleet honest without generating: relay, reaper, and what else comes round. Any number may run."""
