"""The paper: the prompted backbone and what is learned on it."""
