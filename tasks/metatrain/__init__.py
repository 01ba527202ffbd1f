"""Stage `metatrain`: learn the prompt initialization and the gradient regularizer from the tasks."""
