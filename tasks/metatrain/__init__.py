"""Stage `metatrain`: the prompt initialization and the gradient regularizer, learned from the tasks."""
