"""Stage `materialize`: tasks drawn from the clusters and from labeled sets."""
