"""Sources: their specs in params.yaml, ways to fetch them, and manifests of what was acquired."""
