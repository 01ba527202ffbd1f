"""How bytes are kept: sources, shards, hashes, views, lineage."""
