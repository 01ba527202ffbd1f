"""Stage `embed`: a vector for each sentence."""
