"""What DVC knows: the DAG, which stages are fresh and why, its cache, and repairs after a crash."""
