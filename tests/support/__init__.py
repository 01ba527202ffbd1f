"""What tests share: made-up corpora, tiny models, workspaces, processes to watch."""
