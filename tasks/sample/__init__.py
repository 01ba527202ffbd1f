"""Stage `sample`: draw, filter and deduplicate documents, and split them into sentences."""
