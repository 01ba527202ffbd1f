"""params.yaml: its schema, reference, messages, overrides, and the differences between profiles."""
