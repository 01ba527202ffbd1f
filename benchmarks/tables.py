"""Rows of benchmark records as Markdown tables, each below the commands that made its figures."""

import statistics
from collections.abc import Sequence
from typing import Any

from pages import table
from records import Row, read


def sources(records: Sequence[Row]) -> str:
    """Return a line for each record: its command, machine, load, date and commit."""
    if not records:
        return "No record yet."
    lines = []
    for record in records:
        machine, (before, after) = record["machine"], record["load"]
        where = f"{machine['processor']}, {machine['usable_cores']} of {machine['cores']} cores"
        when = f"load {before:.1f} to {after:.1f}, {record['date'][:10]}, commit {record['commit']}"
        lines.append(f"`{record['command']}` ({where}, {when})")
    return "  \n".join(lines)


def rows_of(benchmark: str, *keys: str, leave_out: str = "") -> tuple[list[Row], dict[tuple[Any, ...], Row]]:
    """Return the records of a benchmark that are in use, and their rows by the values of some keys, the newest of each.

    A record is in use if it has a row that no newer record replaces. Rows with the key `leave_out` do not count.
    """
    rows: dict[tuple[Any, ...], tuple[int, Row]] = {}
    records = read(benchmark)
    for number, record in enumerate(records):
        for row in record["rows"]:
            if leave_out not in row:
                rows[tuple(row.get(key) for key in keys)] = (number, row)
    used = {number for number, _ in rows.values()}
    return [record for number, record in enumerate(records) if number in used], {
        key: row for key, (_, row) in rows.items()
    }


def middle(row: Row, name: str) -> float:
    """Return the median of a row's samples."""
    return statistics.median(row[name])


def part(records: Sequence[Row], columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table below the sources of its figures."""
    return f"{sources(records)}\n\n{table(columns, rows)}" if rows else sources(records)


def seconds(row: Row) -> str:
    """Return the median time by the clock, as text."""
    value = middle(row, "seconds")
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"
