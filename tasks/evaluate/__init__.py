"""Measures of a classifier, and the evaluation of a tuned prompt on a labeled file."""
