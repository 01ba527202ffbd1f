"""What tasks are drawn from, as memory-mapped arrays."""
