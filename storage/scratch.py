"""A DuckDB database of a stage's own: in a folder emptied first, spilling beside itself, within a limit of memory."""

from pathlib import Path

import duckdb

from storage.atomic import remove

THREADS = 2
SPILL = "spill"


def scratch_database(folder: Path, name: str, memory: str) -> duckdb.DuckDBPyConnection:
    """Empty `folder` and open a database in it; who opens it removes it."""
    remove(folder)
    folder.mkdir(parents=True)
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "threads": THREADS,
        "temp_directory": str(folder / SPILL),
    }
    return duckdb.connect(folder / name, config=config)
