"""Sources: what params.yaml asks for, how it is fetched, and what came."""
