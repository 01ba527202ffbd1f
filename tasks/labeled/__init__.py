"""Labeled sets as examples, and the few shots drawn from them."""
