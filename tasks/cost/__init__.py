"""Estimates of what a run costs: tokens, operations, memory, disk and time of each stage, before it runs."""
