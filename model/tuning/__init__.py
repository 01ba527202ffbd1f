"""Few-shot tuning of prompts, and the classifier with a tuned prompt."""
