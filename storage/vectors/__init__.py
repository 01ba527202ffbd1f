"""Vectors on disk: those of the sentences, and the centroids of clusters."""
