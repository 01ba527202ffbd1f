"""The state that DVC keeps: the DAG, which stages are fresh and why, the cache, and repairs after a crash."""
