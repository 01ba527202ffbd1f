"""The schemas of the tables that stages write, and readers of tasks and training logs."""
