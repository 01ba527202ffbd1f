"""Prefect's servers and what they keep: settings, artifacts, and the schedule."""
