"""Stage `materialize`: draw tasks from the clusters and from datasets."""
