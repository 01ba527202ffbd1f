"""Checks of the outputs: their hashes, and invariants of the tables."""
