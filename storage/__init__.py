"""Storage of all data: sources, shards, hashes, views and lineage."""
