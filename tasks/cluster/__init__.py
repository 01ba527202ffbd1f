"""Stage `cluster`: k-means over the sentence vectors."""
