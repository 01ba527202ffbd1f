"""The verbs of the `supmer` command, one module a verb."""
