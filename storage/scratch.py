"""Temporary DuckDB databases for stages, with a memory limit; DuckDB spills to a folder beside the database."""

from pathlib import Path

import duckdb

from storage.atomic import remove

THREADS = 2
SPILL = "spill"


def scratch_database(folder: Path, name: str, memory: str) -> duckdb.DuckDBPyConnection:
    """Empty `folder` and open a new database in it; the caller deletes the database."""
    remove(folder)
    folder.mkdir(parents=True)
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "threads": THREADS,
        "temp_directory": str(folder / SPILL),
    }
    return duckdb.connect(folder / name, config=config)
