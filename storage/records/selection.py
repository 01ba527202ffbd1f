"""Selection of documents: duplicates, the draw and the validation split, computed in DuckDB from content alone.

The tables are in a temporary database file, and DuckDB spills to disk beside it, so that memory stays within its limit
for any number of documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from storage.atomic import remove
from storage.parquet import count_rows
from storage.records.forgotten import REASON
from storage.scratch import scratch_database

_MEMORY = "128MB"  # twice as much saves a sixth of the time at 800,000 documents; 2.4 million need no more
_BATCH_ROWS = 65_536
_PREFIX = 4  # hex digits of the document id: the limit of the budget is searched for in 65,536 bins

# `place` is the number of a document in the corpus, in the order of the indexes.
_LISTED = """CREATE TABLE listed (place BIGINT, source VARCHAR, file VARCHAR, "row" BIGINT, "offset" BIGINT,
    document_id VARCHAR, bytes BIGINT, words BIGINT, regular BOOLEAN, reason VARCHAR, detail VARCHAR)"""

_LOAD = """INSERT INTO listed
    SELECT $place + file_row_number, $source, file, "row" + $before, "offset", document_id, bytes, words, regular,
        reason, detail
    FROM read_parquet($path, file_row_number = true)"""

_FORGET = """UPDATE listed SET reason = 'forgotten', detail = f.detail FROM forgotten f
    WHERE f.document_id = listed.document_id"""

# The first copy of every text that passed the filters, inserted in the order of ids, so that rowid is the rank.
_FIRSTS = """CREATE TABLE firsts AS
    SELECT document_id, min(bytes) AS bytes, min(place) AS place
    FROM listed WHERE reason IS NULL GROUP BY document_id ORDER BY document_id"""

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
        CASE WHEN r.place <> r.first THEN 'duplicate' WHEN r.number >= $drawn THEN 'not_drawn' ELSE 'near_duplicate' END
            AS reason,
        CASE reason WHEN 'duplicate' THEN r.first WHEN 'near_duplicate' THEN n.place END AS other
    FROM ranked r LEFT JOIN near n ON n.number = r.number
    WHERE r.place <> r.first OR r.number >= $drawn OR n.number IS NOT NULL""",
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
    SELECT f.document_id FROM firsts f ANTI JOIN nearest n ON n.number = f.rowid WHERE f.rowid < $drawn
    ORDER BY sha256(concat($seed::BIGINT, ':', f.document_id)) LIMIT $count"""


@dataclass(frozen=True)
class IndexFile:
    """The index of one unit (a part of a file); `first_row` is the number of rows of the file before the unit."""

    path: Path
    source: str
    first_row: int


class Selection:
    """The selection, with one method for each step; entering the context empties the folder, leaving it removes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drawn = 0
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
        return self._limits[-1]

    def forget(self, documents: Mapping[str, str]) -> int:
        """Leave out all copies of the documents, given with a remark on each; return the number of copies."""
        if not documents:
            return 0
        self._connection.execute("CREATE TABLE forgotten (document_id VARCHAR, detail VARCHAR)")
        self._connection.executemany("INSERT INTO forgotten VALUES (?, ?)", list(documents.items()))
        self._connection.execute(_FORGET)
        return self._number("SELECT count(*) FROM listed WHERE reason = $1", [REASON])

    def draw(self, budget: int) -> int:
        """Draw texts in the order of their ids until the next would exceed `budget` bytes; return their number."""
        self._connection.execute(_FIRSTS)
        left = budget
        bins = self._connection.execute(
            "SELECT left(document_id, $n) AS bin, sum(bytes)::BIGINT FROM firsts GROUP BY bin ORDER BY bin",
            {"n": _PREFIX},
        ).fetchall()
        for name, size in bins:
            if size > left:
                self._drawn = self._draw_within(name, left)
                return self._drawn
            left -= size
        self._drawn = self._number("SELECT count(*) FROM firsts")
        return self._drawn

    def _draw_within(self, name: str, left: int) -> int:
        """Return the number of texts drawn if the limit lies in the bin `name`, of which `left` bytes can be drawn."""
        drawn = self._number("SELECT count(*) FROM firsts WHERE document_id < $1", [name])
        rows = self._connection.execute(
            "SELECT bytes FROM firsts WHERE left(document_id, $2) = $1 ORDER BY document_id", [name, _PREFIX]
        )
        while row := rows.fetchone():
            left -= row[0]
            if left < 0:
                break
            drawn += 1
        return drawn

    def smallest_text(self) -> int:
        """Return the size in bytes of the smallest text that passed the filters, or 0 if none did."""
        return self._number("SELECT coalesce(min(bytes), 0) FROM firsts")

    def link_near_duplicates(self, bands: Sequence[str]) -> None:
        """Link near duplicates: in each bucket of each band, the smallest id is kept, and the others link to it."""
        run = self._connection.execute
        run("CREATE TABLE links (number BIGINT, keeper BIGINT)")
        if bands:
            run(
                f"""CREATE TABLE signatures AS SELECT f.rowid AS number, {", ".join(f"i.{band}" for band in bands)}
                FROM read_parquet($paths) i JOIN firsts f ON f.document_id = i.document_id
                WHERE i.reason IS NULL AND f.rowid < $drawn""",
                {"paths": self._paths, "drawn": self._drawn},
            )
        for band in bands:  # one band at a time, to limit memory
            run(_LINKS.format(band=band))
        run("CREATE TABLE nearest AS SELECT number, min(keeper) AS keeper FROM links GROUP BY number")
        while self._number("SELECT count(*) FROM nearest a JOIN nearest b ON a.keeper = b.number"):
            run(_FOLLOW)

    def decide(self) -> dict[str, int]:
        """Decide on every document; return the number left out for each reason, largest first."""
        for step in _LEFT_OUT:
            self._connection.execute(step, {"drawn": self._drawn} if "$drawn" in step else {})
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
        self._connection.execute(_HELD_OUT, {"drawn": self._drawn, "seed": seed, "count": count})
        return count

    def with_split(self, documents: Path) -> pa.Table:
        """Return a shard of documents with their split, in the order of the shard."""
        query = """SELECT d.*, CASE WHEN h.document_id IS NULL THEN 'train' ELSE 'validation' END AS split
            FROM read_parquet($1) d LEFT JOIN held_out h USING (document_id) ORDER BY d.file, d."row" """
        return self._connection.sql(query, params=[str(documents)]).to_arrow_table()

    def _number(self, query: str, values: Sequence[object] = ()) -> int:
        row = self._connection.execute(query, list(values)).fetchone()
        return int(row[0]) if row else 0
