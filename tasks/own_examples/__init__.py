"""Tuning on a user's own examples: the command `supmer tune` and the function `supmer.tune`."""
