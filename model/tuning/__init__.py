"""Tuned prompts: runs of few-shot tuning, and the classifier that comes of them."""
