"""What must hold of the outputs: their hashes, and invariants over the tables."""
