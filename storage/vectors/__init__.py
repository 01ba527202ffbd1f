"""Vectors on disk: the embeddings of sentences and the centroids of clusters."""
