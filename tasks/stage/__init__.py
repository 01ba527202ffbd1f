"""The stage contract: inputs, outputs and shards, the fan-out of shards, and their progress."""
