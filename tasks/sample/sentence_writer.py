"""The second pass of sampling: write the sentences of the documents that stay, and the other documents with reasons."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.parquet import write_shard
from storage.records.documents import normalized, read_documents
from storage.tables.corpus_tables import EXCLUDED, KEPT_DOCUMENTS, SENTENCES
from tasks.params.schema import SampleParams
from tasks.sample.corpus_settings import text_field
from tasks.sample.reading_units import parts_of
from tasks.sample.sentences import sentence_spans
from tasks.stage.contract import Record

PARAMS = ("text_field", "shard_mb", "min_sentence_words", "max_sentence_words")
WITHOUT_TEXT = frozenset({"duplicate", "not_drawn", "forgotten"})  # it is elsewhere, or must not be kept
_FLUSH_SENTENCES = 16_384
_LONGEST_COUNTED = 200  # words; the last bin of the histogram holds all longer sentences

Verdict = dict[str, Any]


def write_params(params: SampleParams, corpus: str) -> Record:
    """Return the parameters that the written shards of a corpus depend on."""
    chosen: Record = params.model_dump(include=set(PARAMS))
    return chosen | {"text_field": text_field(params, corpus)}


def write(payload: Record, folder: Path) -> Record:
    """Write one unit's shards; a new shard begins after every `shard_mb` of text."""
    params = SampleParams(**payload["params"])
    size = int(params.shard_mb * 1e6)
    provenance = {
        "stage": "sample",
        "source": payload["source"],
        "parts": payload["parts"],
        "params": payload["params"],
    }
    shards = []
    for number, rows in groupby(_numbered(payload, params, size), key=lambda item: item[0]):
        shard = _ShardWriter(payload["source"], params)
        sentences = write_shard(
            folder / f"sentences-{number}.parquet", SENTENCES, shard.sentences((v, t) for _, v, t in rows), provenance
        )
        write_shard(
            folder / f"documents-{number}.parquet",
            KEPT_DOCUMENTS,
            [_table(shard.documents, KEPT_DOCUMENTS)],
            provenance,
        )
        write_shard(folder / f"excluded-{number}.parquet", EXCLUDED, [_table(shard.excluded, EXCLUDED)], provenance)
        shards.append({"number": number, "sentences": sentences} | shard.summary())
    return {"shards": shards}


def _numbered(payload: Record, params: SampleParams, size: int) -> Iterator[tuple[int, Verdict, str | None]]:
    """Yield every document's verdict with the number of its shard, and its text if that is needed."""
    before = 0
    for verdict, text in _judged(payload, params):
        yield before // size, verdict, text
        before += verdict["bytes"]


def _judged(payload: Record, params: SampleParams) -> Iterator[tuple[Verdict, str | None]]:
    """Yield every document's verdict with its text; the unit is read only if some text is needed."""
    verdicts = pq.ParquetFile(payload["verdicts_path"])
    listed = (verdict for batch in verdicts.iter_batches(4_096, use_threads=False) for verdict in batch.to_pylist())
    if not payload["texts"]:
        yield from ((verdict, None) for verdict in listed)
        return
    documents = (document for part in parts_of(payload) for document in read_documents(part, params.text_field))
    for verdict, document in zip(listed, documents, strict=True):
        yield verdict, None if verdict["reason"] in WITHOUT_TEXT else normalized(document.text)


def _table(rows: list[Record], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


class _ShardWriter:
    """The writer of one shard: it streams sentences and gathers the short tables."""

    def __init__(self, source: str, params: SampleParams) -> None:
        self._source = source
        self._words = range(params.min_sentence_words, params.max_sentence_words + 1)
        self.documents: list[Record] = []
        self.excluded: list[Record] = []
        self.lengths: Counter[int] = Counter()
        self._clear()

    def _clear(self) -> None:
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [], [])

    def sentences(self, judged: Iterable[tuple[Verdict, str | None]]) -> Iterator[pa.RecordBatch]:
        """Yield the sentences of the documents that stay, batch by batch."""
        for verdict, text in judged:
            row = verdict | {"source": self._source}
            if verdict["reason"] is None:
                self.documents.append(
                    row | {"sentences": self._split(verdict["document_id"], text or "", regular=verdict["regular"])}
                )
            else:
                self.excluded.append(row | {"text": text})
            if len(self._columns[0]) >= _FLUSH_SENTENCES:
                yield self._batch()
        if self._columns[0]:
            yield self._batch()

    def _split(self, document: str, text: str, *, regular: bool) -> int:
        """Gather a document's sentences of allowed length; all are counted, so that index + 1 is always the next."""
        spans = sentence_spans(text)
        texts = [text[start:end] for start, end in spans]
        if not regular:
            texts = [" ".join(sentence.split()) for sentence in texts]
        elif "\n" in text:
            texts = [sentence.replace("\n", " ") for sentence in texts]
        words = [sentence.count(" ") + 1 for sentence in texts]
        self.lengths.update(words)
        kept = [index for index, count in enumerate(words) if count in self._words]
        documents, indexes, starts, ends, lengths, sentences = self._columns
        documents.extend([document] * len(kept))
        indexes.extend(kept)
        starts.extend([spans[index][0] for index in kept])
        ends.extend([spans[index][1] for index in kept])
        lengths.extend([words[index] for index in kept])
        sentences.extend([texts[index] for index in kept])
        return len(spans)

    def _batch(self) -> pa.RecordBatch:
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, SENTENCES, strict=True)]
        self._clear()
        return pa.record_batch(arrays, schema=SENTENCES)

    def summary(self) -> Record:
        """Return the figures of the shard."""
        lengths: Counter[int] = Counter()
        for words, count in self.lengths.items():
            lengths[min(words, _LONGEST_COUNTED)] += count
        return {
            "documents": len(self.documents),
            "bytes": sum(row["bytes"] for row in self.documents),
            "words": sum(row["words"] for row in self.documents),
            "lengths": sorted(lengths.items()),
        }
