"""Soft prompts in front of a frozen backbone: rows, passes, prediction, the gradient regularizer."""
