"""The tables that stages write: tasks, training logs, results of tuning."""
