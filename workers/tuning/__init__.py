"""`tokenmill tune`: which topology, slots and step size give this machine the most tokens."""
