"""The sentences and labeled examples that tasks are drawn from, as memory-mapped arrays."""
