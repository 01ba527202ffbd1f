"""The verbs of the `supmer` command, one module for each verb."""
