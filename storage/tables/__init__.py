"""The tables that stages write: the schema of each, once; readers of tasks and training logs."""
