"""The stage contract: inputs, outputs and shards, how shards are spread, and what they report."""
