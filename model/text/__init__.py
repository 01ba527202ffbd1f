"""From examples to tokens: templates, datasets, demonstrations, tokenization."""
