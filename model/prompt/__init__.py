"""Soft prompts in front of a frozen backbone: rows, passes, predictions, the gradient regularizer."""
