"""Text: templates, datasets, demonstrations and tokenization, from examples to token ids."""
