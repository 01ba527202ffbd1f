"""DuckDB views of the tables: read-only, larger than memory if need be, without access to any other files."""

import difflib
import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from storage import paths
from storage.atomic import remove
from storage.errors import InputError
from storage.lockfile import read_pipeline

DEFAULT_MEMORY_MB = 2048
BATCH_ROWS = 2048
INTERRUPTED = "Query interrupted"
_connections = itertools.count()
NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*|BIGNUM)$")
PREDICTIONS_TEXT = "predictions_text"  # a view that joins two tables
_PREDICTIONS_WITH_TEXTS = """SELECT predictions.*, tested_examples.texts FROM predictions
    LEFT JOIN tested_examples ON tested_examples.dataset = predictions.tested_on
    AND tested_examples.example_id = predictions.example_id"""
WRITES = re.compile(r"COPY|INSERT|UPDATE|DELETE|MERGE|CREATE|EXPORT")
# EXPLAIN, with everything that may stand before the statement it explains.
EXPLAIN = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN(?:\s|--[^\n]*\n|/\*.*?\*/)+(?:ANALYZE\b)?(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:\(\s*(?:ANALYZE|FORMAT)\b[^()]*\))?",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Dataset:
    """A folder of Parquet shards written by a stage, and the name of its view."""

    name: str
    path: str
    stage: str
    shards: tuple[Path, ...]


@dataclass(frozen=True)
class Result:
    """A running query: its columns, which of them are numeric, and its rows in batches as DuckDB produces them."""

    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    batches: Iterator[list[tuple[object, ...]]]


def datasets(root: Path) -> list[Dataset]:
    """Return the output folders of dvc.yaml that contain Parquet shards or do not exist yet."""
    outputs = read_pipeline(root).outputs()
    last = [Path(path).name for path in outputs]
    views = []
    for path, stage in outputs.items():
        folder = root / path
        shards = tuple(sorted(shard for shard in folder.rglob("*.parquet") if shard.is_file()))
        unmade = not folder.exists() and not folder.suffix and not Path(path).is_relative_to(paths.SOURCES)
        if shards or unmade:
            name = Path(path).name
            unique = name if last.count(name) == 1 else f"{Path(path).parent.name}_{name}"
            views.append(Dataset(unique, path, stage, shards))
    return views


def connect(
    root: Path, memory_mb: int = DEFAULT_MEMORY_MB, temp: Path | None = None, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a connection to an in-memory database with a view for each table that exists.

    DuckDB itself refuses access to files outside the tables and any change of its settings.
    """
    connection = duckdb.connect(":memory:")
    connection.execute(f"SET memory_limit = '{memory_mb}MB'")
    connection.execute(f"SET threads = {threads or os.cpu_count() or 1}")
    connection.execute("SET enable_progress_bar = false")  # it would be printed between the rows
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET autoload_known_extensions = false")
    connection.execute(f"SET temp_directory = {_literal(str(_own_folder(temp or root / paths.SCRATCH)))}")
    present = [dataset for dataset in datasets(root) if dataset.shards]
    for dataset in present:
        try:
            connection.execute(f"CREATE VIEW {identifier(dataset.name)} AS SELECT * FROM {read_parquet(dataset)}")
        except duckdb.Error:
            continue  # its first shard is damaged: queries that name it report this, others work
    if _has_texts(connection):
        connection.execute(f"CREATE VIEW {PREDICTIONS_TEXT} AS {_PREDICTIONS_WITH_TEXTS}")
    folders = [f"{root / dataset.path}/" for dataset in present]
    allowed = ", ".join(_literal(folder) for folder in {*folders, *map(_plain, folders)})
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _has_texts(connection: duckdb.DuckDBPyConnection) -> bool:
    """True if the tables of predictions and of the examples that were tested are both there."""
    return all("example_id" in view_columns(connection, view) for view in ("predictions", "tested_examples"))


def read_parquet(dataset: Dataset, options: str = "") -> str:
    """Return the SQL expression that reads the shards of a table in order."""
    files = ", ".join(_literal(_plain(str(shard))) for shard in dataset.shards)
    return f"read_parquet([{files}]{', ' if options else ''}{options})"


def _own_folder(temp: Path) -> Path:
    """Return a spill folder for one connection, and delete those of dead processes.

    Connections cannot share a folder, because DuckDB numbers the files of each from 0.
    """
    for left in temp.glob("duckdb-*-*"):
        owner = left.name.split("-")[1]
        if owner.isdecimal() and not _alive(int(owner)):
            remove(left)
    try:
        temp.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{temp}: cannot be made ({error.strerror}), and large sorts need it") from error
    return temp / f"duckdb-{os.getpid()}-{next(_connections)}"


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _plain(path: str) -> str:
    """Return a path escaped for read_parquet, which would interpret brackets and stars as a pattern."""
    return re.sub(r"([*?[])", r"[\1]", path)


def refuse_damaged(root: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise InputError if a table exists but has no view, because an answer without it would be incomplete."""
    for dataset in datasets(root):
        if dataset.shards and not view_columns(connection, dataset.name):
            raise InputError(_no_such_view(root, dataset.name))


def run_query(root: Path, connection: duckdb.DuckDBPyConnection, query: str) -> Result:
    """Run one statement that only reads. Raise InputError if it writes or fails."""
    with one_line_errors(root, query):
        body = _reading_part(connection, query)
    with one_line_errors(root, query, lines_before=1):
        # EXPLAIN has its own line, so that DuckDB's caret still points to the right column.
        row = connection.execute(f"EXPLAIN (FORMAT json)\n{body}").fetchone()
    if row is not None and any(WRITES.search(name) for name in _operators(json.loads(row[1]))):
        raise InputError("sql: the query writes, and the tables are read-only: leave the writing part out")
    with one_line_errors(root, query):
        connection.execute(query)
        described = connection.description or []

    def batches() -> Iterator[list[tuple[object, ...]]]:
        with one_line_errors(root, query):
            while rows := connection.fetchmany(BATCH_ROWS):
                yield rows

    return Result(
        tuple(str(column[0]) for column in described),
        tuple(bool(NUMBERS.fullmatch(str(column[1]))) for column in described),
        batches(),
    )


def _reading_part(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return the SELECT of a query, without an EXPLAIN before it. Raise InputError for other types of statement.

    The type alone is not enough, because a CTE can contain a COPY; therefore `run_query` also checks the plan.
    """
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        problem = f"one statement at a time, found {len(statements)}" if statements else "no query given"
        raise InputError(f"sql: {problem}")
    kind = statements[0].type
    body = query
    if kind == duckdb.StatementType.EXPLAIN:
        body = EXPLAIN.sub("", query, count=1)
        inner = connection.extract_statements(body)
        kind = inner[0].type if len(inner) == 1 else duckdb.StatementType.INVALID
    if kind == duckdb.StatementType.MULTI:
        raise InputError("sql: this needs several statements; in PIVOT, list the values: PIVOT … ON column IN (…)")
    if kind != duckdb.StatementType.SELECT:
        allowed = "SELECT, WITH, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN"
        raise InputError(f"sql: {kind.name} is refused, the tables are read-only: use {allowed}")
    return body


def _operators(plan: list[dict[str, object]]) -> Iterator[str]:
    for node in plan:
        yield str(node["name"])
        children = node["children"]
        if isinstance(children, list):
            yield from _operators(children)


@contextmanager
def one_line_errors(root: Path, query: str | None = None, lines_before: int = 0) -> Iterator[None]:
    """Convert DuckDB's exceptions to InputError; `lines_before` is the number of lines put before the user's query."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:  # what DuckDB makes of a KeyboardInterrupt, if it sees that first
        if str(error) != INTERRUPTED:
            raise
        raise KeyboardInterrupt from error
    except duckdb.CatalogException as error:
        missing = re.search(r"(?:Table|View) with name \"?([^\s\"]+)\"? does not exist", str(error))
        if missing is None:
            raise InputError(_explained(root, error, lines_before)) from error
        raise InputError(_no_such_view(root, missing.group(1))) from error
    except duckdb.OutOfMemoryException as error:
        raise InputError(f"sql: {_headline(error)}: raise --memory-mb, or free disk for {paths.SCRATCH}") from error
    except duckdb.Error as error:
        # The Parquet reader's parser raises the base class itself, and does not name the file.
        unnamed = (
            _first_unreadable(root, query) if type(error) is duckdb.Error and ".parquet" not in str(error) else None
        )
        if unnamed is not None:
            raise InputError(_damage(unnamed, _headline(error))) from error
        raise InputError(_explained(root, error, lines_before)) from error


def _headline(error: duckdb.Error) -> str:
    return str(error).splitlines()[0].rstrip(".")


def _explained(root: Path, error: duckdb.Error, lines_before: int) -> str:
    """Return DuckDB's message on one line, with its caret below; if a shard cannot be read, the message names it."""
    damaged = re.search(rf"""["']({re.escape(str(root))}/[^"']+\.parquet)["']""", str(error))
    if damaged and not isinstance(error, duckdb.PermissionException):
        return _damage(Path(damaged.group(1)).relative_to(root), _headline(error))
    text, _, caret = str(error).partition("\n\nLINE ")
    message = "sql: " + " ".join(text.split())
    if caret:
        number, _, rest = caret.partition(":")
        line = str(int(number) - lines_before) if number.isdecimal() else number
        message += f"\nLINE {line}:{' ' * (len(number) - len(line))}{rest}"
    return message


def _no_such_view(root: Path, name: str) -> str:
    """Return why a view is missing: its stage has not run, its first shard is damaged, or no stage makes it."""
    known = {dataset.name: dataset for dataset in datasets(root)}
    there = [dataset.name for dataset in known.values() if dataset.shards]
    listed = f"views: {', '.join(there) or 'none yet'}"
    dataset = known.get(name)
    if dataset is None:
        near = difflib.get_close_matches(name, known, n=1)
        return f"sql: no view {name}{f', did you mean {near[0]}?' if near else ''} ({listed})"
    if not dataset.shards:
        return f"sql: {name} is not made yet, stage {dataset.stage} makes it: `supmer run {dataset.stage}` ({listed})"
    shard = _first_unreadable(root, name)
    return _damage(shard, "it does not open") if shard else f"sql: {name} cannot be read: `supmer verify` says why"


def _damage(shard: Path, reason: str) -> str:
    return f"{shard}: damaged, cut short or gone ({reason}): `supmer verify` checks all, `supmer run` restores it"


def _first_unreadable(root: Path, query: str | None) -> Path | None:
    """Return the first unreadable shard of the tables that a query names, or of all; slow, for use after failures."""
    named = [dataset for dataset in datasets(root) if query is None or dataset.name in query]
    suspects = [shard for dataset in named for shard in dataset.shards]
    with duckdb.connect(":memory:") as connection:
        for shard in suspects:
            try:
                connection.execute(
                    f"SELECT sum(hash(one)) FROM read_parquet({_literal(_plain(str(shard)))}) AS one"
                ).fetchall()
            except duckdb.Error:
                return shard.relative_to(root)
    return None


@dataclass(frozen=True)
class ViewSummary:
    """A table as listed by `supmer sql`; `rows` is None if a shard is damaged."""

    name: str
    stage: str
    shards: int
    rows: int | None
    columns: dict[str, str]


def summaries(root: Path, connection: duckdb.DuckDBPyConnection) -> list[ViewSummary]:
    """Return all tables with their columns, rows and shards; tables that do not exist yet have no shards."""
    listed = []
    for dataset in datasets(root):
        columns: dict[str, str] = {}
        rows = None
        if dataset.shards:
            try:
                columns = view_columns(connection, dataset.name)
                counted = connection.execute(f"SELECT count(*) FROM {identifier(dataset.name)}").fetchone()
                rows = int(counted[0]) if counted else None
            except duckdb.Error:
                rows = None
        listed.append(ViewSummary(dataset.name, dataset.stage, len(dataset.shards), rows, columns))
    if columns := view_columns(connection, PREDICTIONS_TEXT):
        [predictions] = [view for view in listed if view.name == "predictions"]
        listed.append(replace(predictions, name=PREDICTIONS_TEXT, columns=columns))
    return listed


def view_columns(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, str]:
    """Return the columns of a view with their DuckDB types; empty if there is no such view."""
    rows = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index", [name]
    ).fetchall()
    return {str(column): str(kind) for column, kind in rows}
