"""Selection of documents: duplicates, the draw and the validation split, computed in DuckDB from content alone.

The tables are in a temporary database file, and DuckDB spills to disk beside it, so that memory stays within its limit
for any number of documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow as pa

from storage.atomic import remove
from storage.parquet import count_rows
from storage.records.forgotten import REASON
from storage.scratch import scratch_database

_MEMORY = "128MB"  # twice as much saves a sixth of the time at 800,000 documents; 2.4 million need no more
_BATCH_ROWS = 65_536
_BINS = 65_536  # parts of the order of the draw, in one of which the limit of a budget is searched for

# `place` is the number of a document in the corpus, in the order of the indexes.
_LISTED = """CREATE TABLE listed (place BIGINT, source VARCHAR, file VARCHAR, "row" BIGINT, "offset" BIGINT,
    document_id VARCHAR, bytes BIGINT, words BIGINT, regular BOOLEAN, reason VARCHAR, detail VARCHAR)"""

_LOAD = """INSERT INTO listed
    SELECT $place + file_row_number, $source, file, "row" + $before, "offset", document_id, bytes, words, regular,
        reason, detail
    FROM read_parquet($path, file_row_number = true)"""

_FORGET = """UPDATE listed SET reason = 'forgotten', detail = f.detail FROM forgotten f
    WHERE f.document_id = listed.document_id"""

# The first copy of every text that passed the filters, inserted in the order of the draw, so that rowid is the rank.
_FIRSTS = """CREATE TABLE firsts AS
    SELECT document_id, bytes, place, floor({turn} * $bins)::INTEGER AS bin FROM (
        SELECT document_id, min(bytes) AS bytes, min(place) AS place
        FROM listed WHERE reason IS NULL GROUP BY document_id
    ) ORDER BY {order}"""
_FRACTION = "('0x' || left(document_id, 13))::BIGINT / (1::BIGINT << 52)"  # the id as a number between 0 and 1

_LINKS = """INSERT INTO links
    SELECT s.number, b.keeper FROM signatures s JOIN (
        SELECT {band} AS key, min(number) AS keeper FROM signatures GROUP BY key HAVING count(*) > 1
    ) b ON s.{band} = b.key WHERE s.number <> b.keeper"""

# Links always lead to a smaller number, so following them ends at a document that is kept.
_FOLLOW = """CREATE OR REPLACE TABLE nearest AS
    SELECT a.number, coalesce(b.keeper, a.keeper) AS keeper FROM nearest a LEFT JOIN nearest b ON a.keeper = b.number"""

# Each step has one join and narrow rows, so that it fits into the memory limit or spills to disk.
_LEFT_OUT = (
    """CREATE TABLE near AS SELECT n.number, k.document_id, k.place
    FROM nearest n JOIN firsts k ON k.rowid = n.keeper""",
    """CREATE TABLE ranked AS SELECT l.place, f.rowid AS number, f.place AS first
    FROM listed l JOIN firsts f ON f.document_id = l.document_id WHERE l.reason IS NULL""",
    """CREATE TABLE judged AS SELECT r.place,
        CASE WHEN r.place <> r.first THEN 'duplicate' WHEN NOT {drawn} THEN 'not_drawn' ELSE 'near_duplicate' END
            AS reason,
        CASE reason WHEN 'duplicate' THEN r.first WHEN 'near_duplicate' THEN n.place END AS other
    FROM ranked r LEFT JOIN near n ON n.number = r.number
    WHERE r.place <> r.first OR NOT {drawn} OR n.number IS NOT NULL""",
    """CREATE TABLE copies AS SELECT j.place, concat(o.source, '/', o.file, ' row ', o."row") AS detail, o.document_id
    FROM judged j JOIN listed o ON o.place = j.other WHERE j.other IS NOT NULL""",
    """CREATE TABLE left_out AS SELECT j.place, j.reason, c.detail, c.document_id AS duplicate_of
    FROM judged j LEFT JOIN copies c ON c.place = j.place ORDER BY j.place""",
)

_VERDICTS = """SELECT l.file, l."row", l."offset", l.document_id, l.bytes, l.words, l.regular,
        coalesce(l.reason, x.reason) AS reason, coalesce(l.detail, x.detail) AS detail, x.duplicate_of
    FROM (FROM listed WHERE place >= $1 AND place < $2) l
        LEFT JOIN (FROM left_out WHERE place >= $1 AND place < $2) x ON x.place = l.place
    ORDER BY l.place"""

_REASONS = """SELECT reason, count(*) AS n FROM (
        SELECT reason FROM listed WHERE reason IS NOT NULL UNION ALL SELECT reason FROM left_out
    ) GROUP BY reason ORDER BY n DESC, reason"""

_HELD_OUT = """CREATE TABLE held_out AS
    SELECT f.document_id FROM firsts f ANTI JOIN nearest n ON n.number = f.rowid WHERE {drawn}
    ORDER BY sha256(concat($seed::BIGINT, ':', f.document_id)) LIMIT $count"""


@dataclass(frozen=True)
class IndexFile:
    """The index of one unit (a part of a file); `first_row` is the number of rows of the file before the unit."""

    path: Path
    source: str
    first_row: int


@dataclass(frozen=True)
class Limits:
    """Limits of the draw: bytes in all, weights of sources (1 unless named), and budgets of sources in bytes."""

    budget: int
    weights: Mapping[str, float] = field(default_factory=dict)
    budgets: Mapping[str, int] = field(default_factory=dict)


class _Places(NamedTuple):
    """The places of the documents of one source."""

    start: int
    stop: int

    def condition(self, place: str = "place") -> str:
        """Return the SQL condition that a place is among them."""
        return f"({place} >= {self.start} AND {place} < {self.stop})"


class Selection:
    """The selection, with one method for each step; entering the context empties the folder, leaving it removes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drawn = 0
        self._end = 0  # the rank at which the draw ends
        self._ends: dict[_Places, int] = {}  # and that of sources with a budget
        self._places: dict[str, _Places] = {}
        self._paths: list[str] = []
        self._limits = [0]  # the place at which each unit begins, and the end of the last

    def __enter__(self) -> Self:
        self._connection = scratch_database(self._folder, "selection.duckdb", _MEMORY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()
        remove(self._folder)

    def load(self, indexes: Sequence[IndexFile]) -> int:
        """Load the indexes, one for each unit, and return the number of documents they list."""
        self._connection.execute(_LISTED)
        self._paths = [str(index.path) for index in indexes]
        for index in indexes:
            values = {"place": self._limits[-1], "source": index.source, "before": index.first_row}
            self._connection.execute(_LOAD, values | {"path": str(index.path)})
            self._limits.append(self._limits[-1] + count_rows(index.path))
            start = self._places.get(index.source, _Places(self._limits[-2], 0)).start
            self._places[index.source] = _Places(start, self._limits[-1])
        return self._limits[-1]

    def forget(self, documents: Mapping[str, str]) -> int:
        """Leave out all copies of the documents, given with a remark on each; return the number of copies."""
        if not documents:
            return 0
        self._connection.execute("CREATE TABLE forgotten (document_id VARCHAR, detail VARCHAR)")
        self._connection.executemany("INSERT INTO forgotten VALUES (?, ?)", list(documents.items()))
        self._connection.execute(_FORGET)
        return self._number("SELECT count(*) FROM listed WHERE reason = $1", [REASON])

    def draw(self, limits: Limits) -> int:
        """Draw texts in the order of their ids until the next would exceed the budget; return their number.

        A weight changes the order: the fraction that an id stands for is divided by it. A text that exceeds the budget
        of its source is passed over.
        """
        turn = self._turn(limits.weights)
        order = "document_id" if turn == _FRACTION else f"{turn}, document_id"
        self._connection.execute(_FIRSTS.format(turn=turn, order=order), {"bins": _BINS})
        for source, budget in limits.budgets.items():
            if places := self._places.get(source):
                self._ends[places] = self._end_of(budget, places.condition())
        self._end = self._end_of(limits.budget, self._within_own_budget("rowid", "place"))
        self._drawn = self._number(f"SELECT count(*) FROM firsts WHERE {self._is_drawn('rowid', 'place')}")
        return self._drawn

    def _turn(self, weights: Mapping[str, float]) -> str:
        """Return the SQL of a document's turn: a number between 0 and 1, at twice the weight half as large."""
        rates = {places: weights.get(source, 1.0) for source, places in self._places.items()}
        least = min(rates.values(), default=1.0)
        cases = [f"WHEN {places.condition()} THEN {least / rate!r}" for places, rate in rates.items() if rate != least]
        return f"{_FRACTION} * CASE {' '.join(cases)} ELSE 1 END" if cases else _FRACTION

    def _end_of(self, budget: int, condition: str) -> int:
        """Return the rank of the first text under a condition that would exceed the budget, or else of the end."""
        left = budget
        sizes = self._connection.execute(
            f"SELECT bin, sum(bytes)::BIGINT FROM firsts WHERE {condition} GROUP BY bin ORDER BY bin"
        ).fetchall()
        for name, size in sizes:
            if size > left:
                return self._end_within(name, left, condition)
            left -= size
        return self._number("SELECT count(*) FROM firsts")

    def _end_within(self, name: int, left: int, condition: str) -> int:
        """Return the rank at which the draw ends if it ends in the bin `name`, of which `left` bytes can be drawn."""
        rows = self._connection.execute(
            f"SELECT rowid, bytes FROM firsts WHERE bin = $1 AND {condition} ORDER BY rowid", [name]
        )
        end = 0
        while left >= 0 and (row := rows.fetchone()):
            end, size = row
            left -= size
        return end

    def _is_drawn(self, number: str, place: str) -> str:
        """Return the SQL condition that the text of a rank and place is drawn."""
        return f"({number} < {self._end} AND {self._within_own_budget(number, place)})"

    def _within_own_budget(self, number: str, place: str) -> str:
        own = (f"NOT ({places.condition(place)} AND {number} >= {end})" for places, end in self._ends.items())
        return " AND ".join(("true", *own))

    def is_shut_out(self, source: str) -> bool:
        """True if the budget of a source is below the first of its texts."""
        places = self._places[source]
        query = f"SELECT coalesce(min(rowid), -1) FROM firsts WHERE {places.condition()}"
        return self._ends.get(places) == self._number(query)

    def smallest_text(self, source: str | None = None) -> int:
        """Return the size in bytes of the smallest text that passed the filters, or 0 if none did."""
        places = self._places[source].condition() if source else "true"
        return self._number(f"SELECT coalesce(min(bytes), 0) FROM firsts WHERE {places}")

    def link_near_duplicates(self, bands: Sequence[str]) -> None:
        """Link near duplicates: in each bucket of each band, the first drawn is kept, and the others link to it."""
        run = self._connection.execute
        run("CREATE TABLE links (number BIGINT, keeper BIGINT)")
        if bands:
            run(
                f"""CREATE TABLE signatures AS SELECT f.rowid AS number, {", ".join(f"i.{band}" for band in bands)}
                FROM read_parquet($paths) i JOIN firsts f ON f.document_id = i.document_id
                WHERE i.reason IS NULL AND {self._is_drawn("f.rowid", "f.place")}""",
                {"paths": self._paths},
            )
        for band in bands:  # one band at a time, to limit memory
            run(_LINKS.format(band=band))
        run("CREATE TABLE nearest AS SELECT number, min(keeper) AS keeper FROM links GROUP BY number")
        while self._number("SELECT count(*) FROM nearest a JOIN nearest b ON a.keeper = b.number"):
            run(_FOLLOW)

    def decide(self) -> dict[str, int]:
        """Decide on every document; return the number left out for each reason, largest first."""
        for step in _LEFT_OUT:
            self._connection.execute(step.format(drawn=self._is_drawn("r.number", "r.first")))
        return dict(self._connection.execute(_REASONS).fetchall())

    def verdicts(self, unit: int) -> pa.RecordBatchReader:
        """Return the verdicts on the documents of a unit, in order; `reason` is null for documents that are kept."""
        limits = self._limits[unit : unit + 2]
        return self._connection.sql(_VERDICTS, params=limits).to_arrow_reader(_BATCH_ROWS)

    def put_aside(self, share: float, seed: int) -> int:
        """Choose a share of the documents for validation, by a hash of seed and id; return their number."""
        kept = self._drawn - self._number("SELECT count(*) FROM nearest")
        count = round(share * kept)
        if share > 0 and kept > 1:
            count = min(max(count, 1), kept - 1)
        query = _HELD_OUT.format(drawn=self._is_drawn("f.rowid", "f.place"))
        self._connection.execute(query, {"seed": seed, "count": count})
        return count

    def with_split(self, documents: Path) -> pa.Table:
        """Return a shard of documents with their split, in the order of the shard."""
        query = """SELECT d.*, CASE WHEN h.document_id IS NULL THEN 'train' ELSE 'validation' END AS split
            FROM read_parquet($1) d LEFT JOIN held_out h USING (document_id) ORDER BY d.file, d."row" """
        return self._connection.sql(query, params=[str(documents)]).to_arrow_table()

    def _number(self, query: str, values: Sequence[object] = ()) -> int:
        row = self._connection.execute(query, list(values)).fetchone()
        return int(row[0]) if row else 0
