"""Prefect's servers, their settings, the artifacts they show, and the schedule."""
