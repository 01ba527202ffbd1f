"""The pool that anchor tasks are drawn from: sentences with neighbours and clusters, joined in DuckDB, kept as arrays.

Rows are sentences, numbered shard by shard; the sentences of a document are in the order of their index. For each
format and split there are two lists of rows, ordered by cluster, with every text once: `members`, the sentences of each
cluster, and `next`, those members for which a question about the following sentence can be asked. DuckDB joins one
shard at a time and sorts only numbers, in bounded memory. Workers map the arrays into memory.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson
import pyarrow as pa

from storage.atomic import remove, write_bytes
from storage.errors import InputError
from storage.parquet import count_rows
from storage.pools.row_arrays import Array, Integers, Rows, RowWriter, map_array
from storage.scratch import SPILL, scratch_database
from storage.task_formats import FORMATS, SPLITS

# A document with this many different texts has at least one besides those of a sentence and its two neighbours: it can
# serve as a wrong answer from the same document.
TEXTS_FOR_DISTANT = 4

_MEMORY = "256MB"
_BATCH_ROWS = 65_536
_SUMMARY = "pool.json"
_SENTENCE_KINDS = {"document": "i4", "index": "i4", "key": "u8", "sp": "i4", "mc": "i4", "ss": "i4"}
_DOCUMENT_KINDS = {"first": "i8", "rows": "i4", "texts": "i4"}

# Texts of validation documents: sentences of training documents with the same text are left out, as if filtered.
_HELD_OUT = """INSERT INTO held_out SELECT DISTINCT hash(s.text)
    FROM read_parquet($sentences) s SEMI JOIN (FROM read_parquet($documents) WHERE split = 'validation')
    USING (document_id)"""

_JOINED = """WITH every AS (SELECT document_id, index, text, hash(text) AS key FROM read_parquet($sentences)),
    own AS (SELECT e.*, d.split FROM every e
        LEFT JOIN read_parquet($documents) d ON d.document_id = e.document_id LEFT JOIN shared h ON h.key = e.key
        WHERE d.split IS DISTINCT FROM 'train' OR h.key IS NULL),
    counted AS (SELECT document_id, count(DISTINCT key) AS texts, count(*) AS rows FROM own GROUP BY document_id)
    SELECT s.document_id, s.index, s.text, s.key, s.split, a.sp, a.mc, a.ss, c.texts, c.rows,
        a.document_id IS NOT NULL AS assigned,
        coalesce(lead(s.index) OVER following = s.index + 1 AND lead(s.key) OVER following <> s.key, false) AS next
    FROM own s JOIN counted c USING (document_id)
        LEFT JOIN read_parquet($assignments) a ON a.document_id = s.document_id AND a.index = s.index
    WINDOW following AS (PARTITION BY s.document_id ORDER BY s.index)
    ORDER BY s.document_id, s.index"""

_ROWS = """CREATE TABLE rows (row BIGINT, document INTEGER, key UBIGINT, sp INTEGER, mc INTEGER, ss INTEGER,
    split VARCHAR, next BOOLEAN, texts INTEGER)"""

_LISTED = """SELECT arg_min({format}, row) AS cluster, min(row) AS row FROM rows
    WHERE {format} IS NOT NULL AND split = $split AND {condition} GROUP BY key ORDER BY ALL"""


@dataclass(frozen=True)
class ShardFiles:
    """The three tables of one shard of the corpus."""

    documents: Path
    sentences: Path
    assignments: Path


@dataclass(frozen=True)
class Grouped:
    """Row numbers ordered by cluster: the rows of `clusters[i]` are `rows[starts[i] : starts[i + 1]]`."""

    rows: Integers
    clusters: Array
    starts: Integers

    @property
    def sizes(self) -> Integers:
        """The number of rows of each cluster, in the order of `clusters`."""
        return np.diff(self.starts)

    def span(self, cluster: int) -> tuple[int, int]:
        """Return the start and the end of a cluster's rows."""
        place = int(np.searchsorted(self.clusters, cluster))
        return int(self.starts[place]), int(self.starts[place + 1])


class PoolWriter:
    """Builds the pool step by step; entering the context empties the folder, leaving it deletes the database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._documents = 0
        self.left_out = 0

    def __enter__(self) -> Self:
        self._connection = scratch_database(self._folder, "rows.duckdb", _MEMORY)
        self._connection.execute(_ROWS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()
        for left in ("rows.duckdb", SPILL):
            remove(self._folder / left)

    def gather(self, shards: Sequence[ShardFiles]) -> int:
        """Write the sentences of all shards and return their number.

        Sentences of training documents whose text is also in a validation document are left out; `left_out` counts
        them.
        """
        # read_parquet would interpret brackets and stars in a folder's name as a pattern.
        paths = [
            {name: re.sub(r"([*?[])", r"[\1]", str(path)) for name, path in vars(files).items()} for files in shards
        ]
        self._connection.execute("CREATE TABLE held_out (key UBIGINT)")
        for files in paths:
            wanted = {name: files[name] for name in ("sentences", "documents")}
            self._connection.execute(_HELD_OUT, wanted)
        self._connection.execute("CREATE TABLE shared AS SELECT DISTINCT key FROM held_out")
        with (
            RowWriter(self._folder / "sentences", _SENTENCE_KINDS) as sentences,
            RowWriter(self._folder / "documents", _DOCUMENT_KINDS) as documents,
        ):
            for shard, files in zip(shards, paths, strict=True):
                reader = self._connection.sql(_JOINED, params=files).to_arrow_reader(_BATCH_ROWS)
                last = None  # a document may continue in the next batch
                for batch in reader:
                    table = pa.Table.from_batches([batch])
                    _refuse_gaps(table, shard)
                    last = self._append(table, sentences, documents, last)
            self.left_out = sum(count_rows(shard.sentences) for shard in shards) - sentences.rows
            return sentences.rows

    def _append(self, table: pa.Table, sentences: RowWriter, documents: RowWriter, last: str | None) -> str | None:
        """Write a batch of sentences and the documents that begin in it; return the id of the last document."""
        if not table.num_rows:
            return last
        ids = table["document_id"].combine_chunks()
        starts = np.ones(len(ids), bool)
        starts[1:] = ids[1:].to_numpy(zero_copy_only=False) != ids[:-1].to_numpy(zero_copy_only=False)
        starts[0] = ids[0].as_py() != last
        places = np.flatnonzero(starts)
        numbers = self._documents - 1 + np.cumsum(starts)
        opened = table.take(pa.array(places))
        documents.append(
            opened["document_id"].combine_chunks(),
            {"first": sentences.rows + places, "rows": opened["rows"].to_numpy(), "texts": opened["texts"].to_numpy()},
        )
        self._documents += len(places)
        rows = pa.array(sentences.rows + np.arange(len(ids)))
        columns = {name: table[name].fill_null(-1).to_numpy() for name in FORMATS}
        columns |= {"document": numbers, "index": table["index"].to_numpy(), "key": table["key"].to_numpy()}
        sentences.append(table["text"].combine_chunks(), columns)
        kept = ["key", *FORMATS, "split", "next", "texts"]
        batch = table.select(kept).append_column("row", rows).append_column("document", pa.array(numbers))
        with self._connection.cursor() as beside:  # the connection is still reading the query that gives the batches
            beside.register("batch", batch)
            beside.execute("INSERT INTO rows BY NAME FROM batch")
        return str(ids[-1].as_py())

    def list_anchors(self, formats: Sequence[str], *, hard: bool) -> None:
        """Write the lists of each format and split; if `hard`, mc-next needs other sentences of the same document."""
        summary: dict[str, Any] = {"groups": {}, "documents": {}}
        for split in SPLITS:
            for format_ in formats:
                lists = {"members": "true"}
                if format_ != "ss":
                    distant = TEXTS_FOR_DISTANT if format_ == "sp" or hard else 0
                    lists["next"] = f"next AND texts >= {distant}"
                for name, condition in lists.items():
                    key = f"{name}-{format_}-{split}"
                    summary["groups"][key] = self._write_list(key, format_, split, condition)
            counted = "SELECT count(DISTINCT document) FROM rows WHERE split = $1"
            summary["documents"][split] = self._connection.execute(counted, [split]).fetchall()[0][0]
        write_bytes(self._folder / _SUMMARY, orjson.dumps(summary))

    def _write_list(self, key: str, format_: str, split: str, condition: str) -> list[list[int]]:
        """Write one list of rows, and return its clusters with their sizes."""
        query = _LISTED.format(format=format_, condition=condition)
        sizes: dict[int, int] = {}
        with (self._folder / key).open("wb") as file:
            for batch in self._connection.sql(query, params={"split": split}).to_arrow_reader(_BATCH_ROWS):
                clusters, counts = np.unique(batch.column("cluster").to_numpy(), return_counts=True)
                for cluster, count in zip(clusters.tolist(), counts.tolist(), strict=True):
                    sizes[cluster] = sizes.get(cluster, 0) + count
                file.write(batch.column("row").to_numpy().tobytes())
        return [[cluster, size] for cluster, size in sizes.items()]


def _refuse_gaps(table: pa.Table, shard: ShardFiles) -> None:
    """Raise InputError if a sentence has no document or no row of clusters."""
    for column, path, stage in (("split", shard.documents, "sample"), ("assigned", shard.assignments, "cluster")):
        present = table[column].is_valid() if column == "split" else table[column]
        place = present.index(False).as_py()
        if place >= 0:
            sentence = f"{table['document_id'][place].as_py()}:{table['index'][place].as_py()}"
            raise InputError(f"{path}: nothing on sentence {sentence}: `supmer run --force {stage}`")


class Pool:
    """A finished pool, memory-mapped, from which workers draw tasks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._summary = orjson.loads((folder / _SUMMARY).read_bytes())
        self.sentences = Rows(folder / "sentences", _SENTENCE_KINDS)
        self._documents = Rows(folder / "documents", _DOCUMENT_KINDS)

    def documents(self, split: str) -> int:
        """Return the number of documents of a split that have sentences."""
        return int(self._summary["documents"][split])

    def group(self, name: str, format_: str, split: str) -> Grouped:
        """Return the list `name` (`members` or `next`) of a format and split."""
        key = f"{name}-{format_}-{split}"
        sizes = self._summary["groups"][key]
        starts = np.cumsum([0, *(size for _, size in sizes)], dtype=np.int64)
        clusters = np.array([cluster for cluster, _ in sizes], np.int64)
        return Grouped(map_array(self._folder / key, np.int64), clusters, starts)

    def document_column(self, column: str, rows: Integers) -> Integers:
        """Return a column of the documents of the given rows.

        The columns are `first` (first row), `rows` (number of rows) and `texts` (number of different texts).
        """
        values: Integers = self._documents[column][self.sentences["document"][rows]].astype(np.int64)
        return values

    def sentence_ids(self, rows: Integers) -> pa.Array:
        """Return the sentence ids of the given rows, as DOCUMENT_ID:INDEX."""
        import pyarrow.compute as pc

        documents = self._documents.take_texts(self.sentences["document"][rows].astype(np.int64))
        return pc.binary_join_element_wise(documents, pa.array(self.sentences["index"][rows]).cast(pa.string()), ":")
