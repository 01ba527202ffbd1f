"""Datasets as examples, and the few-shot splits drawn from them."""
