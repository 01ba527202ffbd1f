"""`supmer sql`: query every table of the workspace with DuckDB."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from flows.interruptible import interruptible
from flows.terminal import table
from flows.workspace import enter
from storage.counts import counted
from storage.errors import InputError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from storage.queries.views import Result, ViewSummary


EXAMPLES = """\b
Examples:
  supmer sql
  supmer sql "SELECT reason, count(*) FROM excluded GROUP BY 1 ORDER BY 2 DESC"
  supmer sql "FROM sentences" --format csv > sentences.csv
"""


@click.command(name="sql", epilog=EXAMPLES)
@click.argument("query", required=False)
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Rows to print; 0: all.")
@click.option("--memory-mb", type=click.IntRange(min=64), help="Memory for DuckDB; what needs more uses .supmer/tmp.")
def command(query: str | None, form: str, limit: int, memory_mb: int | None) -> None:
    """Query every table of the workspace with DuckDB, read-only; if QUERY is -, read it from standard input.

    Without QUERY, list the views with their columns, rows and shards.
    """
    root = enter()
    text = _standard_input() if query == "-" else query
    opened: list[DuckDBPyConnection] = []

    def interrupt() -> None:
        for connection in opened:
            from duckdb import ConnectionException

            with suppress(ConnectionException):  # it was closed meanwhile
                connection.interrupt()

    with interruptible(interrupt):  # from here on: while DuckDB is loaded, a Ctrl-C may be lost
        from storage.queries.views import DEFAULT_MEMORY_MB, connect, run_query, summaries

        with connect(root, memory_mb or DEFAULT_MEMORY_MB) as connection:
            opened.append(connection)
            if text is None:
                _list_views(summaries(root, connection), form)
            else:
                _write(run_query(root, connection, text), form, limit)


def _standard_input() -> str:
    content = sys.stdin.buffer.read()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} is 0x{content[error.start]:02x}"
        raise InputError(f"sql: standard input is not UTF-8 ({wrong}): convert the query to UTF-8") from None


def _list_views(views: list[ViewSummary], form: str) -> None:
    if form == "json":
        click.echo(json.dumps([vars(view) for view in views], indent=2))
        return
    rows = [
        (
            view.name,
            view.rows if view.shards else None if form == "csv" else "–",
            view.shards,
            view.stage,
            ", ".join(f"{name} {kind.lower()}" for name, kind in view.columns.items())
            or ("damaged: `supmer verify`" if view.shards else f"not made yet: `supmer run {view.stage}`"),
        )
        for view in views
    ]
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([("view", "rows", "shards", "stage", "columns"), *rows])
        return
    for line in table(("view", "rows", "shards", "stage", "columns"), rows, (False, True, True, False, False)):
        click.echo(line)


def _write(result: Result, form: str, limit: int) -> None:
    match form:
        case "csv":
            _write_csv(result)
        case "json":
            _write_json(result)
        case _:
            _write_table(result, limit)


def _write_table(result: Result, limit: int) -> None:
    rows = (row for batch in result.batches for row in batch)
    shown = list(islice(rows, limit or None))
    if result.columns == ("explain_key", "explain_value"):
        for _, plan in shown:
            click.echo(plan)
        return
    for line in table(result.columns, shown, result.numeric):
        click.echo(line)
    more = next(rows, None) is not None
    count = counted(len(shown), "row")
    click.echo(f"({count} shown, there are more: --limit 0 or --format csv)" if more else f"({count})")


def _write_csv(result: Result) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    for batch in result.batches:
        writer.writerows(batch)


def _write_json(result: Result) -> None:
    """Write the rows as a JSON array, one object per line, as they arrive."""
    names = _distinct(result.columns)
    separator = "[\n"
    for batch in result.batches:
        for row in batch:
            sys.stdout.write(separator + _json_row(dict(zip(names, row, strict=True))))
            separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _distinct(columns: tuple[str, ...]) -> list[str]:
    """Return the column names as keys; a repeated name gets a number, so that no value is lost."""
    names: list[str] = []
    for name in columns:
        repeated = sum(earlier == name for earlier in columns[: len(names)])
        names.append(f"{name}_{repeated}" if repeated else name)
    return names


def _json_row(row: dict[str, Any]) -> str:
    import orjson

    try:
        return orjson.dumps(row, default=_json_value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer of more than 64 bits, which sum() can return
        return json.dumps(row, default=_json_value, ensure_ascii=False)


def _json_value(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
