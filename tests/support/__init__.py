"""Helpers that tests share: made-up corpora, tiny models, workspaces, and processes to follow."""
