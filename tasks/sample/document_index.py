"""The first pass of sampling: the facts of each document, the verdict of the filters, and the keys of its bands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.hashing import document_id
from storage.parquet import write_shard
from storage.records.documents import Document, normalized, read_documents
from storage.records.parts import count_rows
from storage.tables.corpus_tables import index_schema
from tasks.params.schema import NearDuplicateParams, SampleParams
from tasks.sample.corpus_settings import text_field
from tasks.sample.filters import inspect
from tasks.sample.minhash import band_keys
from tasks.sample.reading_units import parts_of
from tasks.stage.contract import Record

INDEX = "index.parquet"
PARAMS = (
    "text_field",
    "language",
    "min_words",
    "max_words",
    "min_mean_word_length",
    "max_mean_word_length",
    "min_alphabetic_share",
    "max_repeated_line_share",
)
_BATCH_BYTES = 200_000  # bytes of text hashed at once: measured fastest, the arrays stay in the processor's cache
_LONGEST_HASHED = 2_000_000  # characters; texts that are equal so far are near duplicates, and memory is bounded
_FLUSH_ROWS = 8_192


def index_params(params: SampleParams, corpus: str) -> Record:
    """Return the parameters that an index of a corpus depends on."""
    chosen: Record = params.model_dump(include=set(PARAMS)) | {"text_field": text_field(params, corpus)}
    near = params.near_duplicates
    return chosen | {"near_duplicates": near.model_dump() if near.enabled else {"enabled": False}}


def band_names(near: NearDuplicateParams) -> list[str]:
    """Return the columns that hold the keys of the bands."""
    return [f"band_{band:02d}" for band in range(near.bands)] if near.enabled else []


def index(payload: Record, folder: Path) -> Record:
    """Read one unit and write its index: a row for each document, without the text."""
    params = SampleParams(**payload["params"])
    parts = parts_of(payload)
    documents = (document for part in parts for document in read_documents(part, params.text_field))
    table = _Index(params)
    provenance = {"stage": "sample", "step": "index", "parts": payload["parts"], "params": payload["params"]}
    written = write_shard(folder / INDEX, table.schema, table.batches(documents), provenance)
    whole = parts[0].start == 0 and parts[0].stop is None
    return {"documents": written, "rows": written if whole else count_rows(parts[0])}


class _Index:
    """The rows of one index, gathered into batches."""

    def __init__(self, params: SampleParams) -> None:
        self._params = params
        self._bands = band_names(params.near_duplicates)
        self.schema = index_schema(self._bands)
        self._rows: list[tuple[Any, ...]] = []
        self._keys: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
        self._pending: list[str] = []
        self._pending_bytes = 0

    def batches(self, documents: Iterator[Document]) -> Iterator[pa.RecordBatch]:
        """Yield the index of the documents, batch by batch."""
        for document in documents:
            text = normalized(document.text)
            encoded = text.encode()
            size = len(encoded)
            inspection = inspect(text, encoded, self._params)
            reason, detail = inspection.rejection or (None, None)
            place = (document.file, document.row, document.offset)
            self._rows.append((*place, document_id(text), size, *inspection.words, reason, detail))
            if self._bands:
                self._pending.append("" if inspection.rejection else text[:_LONGEST_HASHED])
                self._pending_bytes += 0 if inspection.rejection else size
                if self._pending_bytes >= _BATCH_BYTES:
                    self._hash_pending()
            if len(self._rows) >= _FLUSH_ROWS:
                yield self._batch()
        if self._rows:
            yield self._batch()

    def _hash_pending(self) -> None:
        near = self._params.near_duplicates
        self._keys.append(band_keys(self._pending, near.shingle_words, near.bands, near.rows))
        self._pending, self._pending_bytes = [], 0

    def _batch(self) -> pa.RecordBatch:
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        if self._bands:
            self._hash_pending()
            columns.extend(np.concatenate(self._keys).T)
        self._rows, self._keys = [], []
        return pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)],
            schema=self.schema,
        )
