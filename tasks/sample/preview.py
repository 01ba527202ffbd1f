"""A preview of stage `sample`: what the filters keep and drop among the first documents of each corpus."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from storage.hashing import document_id
from storage.records.documents import normalized, read_documents
from storage.records.forgotten import REASON, Forgotten
from storage.records.formats import is_ignored
from storage.records.parts import Part
from tasks.params.schema import SampleParams
from tasks.sample.corpus_settings import text_field
from tasks.sample.filters import inspect
from tasks.sample.sentences import sentence_spans


@dataclass(frozen=True)
class Previewed:
    """A document of a corpus, and what the filters say of it.

    Attributes:
        reason: the filter that drops it; None if it is kept.
        sentences: its sentences that are kept, if the document is.
        dropped_sentences: those that are too short or too long.
    """

    corpus: str
    file: str
    row: int
    text: str
    reason: str | None
    detail: str | None
    sentences: tuple[str, ...] = ()
    dropped_sentences: tuple[str, ...] = ()


def preview(
    corpora: Mapping[str, Sequence[Part]], params: SampleParams, forgotten: Mapping[str, Forgotten], limit: int
) -> Iterator[Previewed]:
    """Yield the first `limit` documents of each corpus, judged one by one.

    Exact duplicates are found among these documents only; near duplicates and the draw need the whole corpus.
    """
    first: dict[str, str] = {}
    for corpus, parts in corpora.items():
        field = text_field(params, corpus)
        read = (document for part in parts if not is_ignored(part.name) for document in read_documents(part, field))
        for document in islice(read, limit):
            text = normalized(document.text)
            content, place = document_id(text), f"{corpus}/{document.file} row {document.row}"
            reason, detail = inspect(text, text.encode(), params).rejection or (None, None)
            if content in forgotten:
                reason, detail = REASON, str(forgotten[content])
            elif reason is None and content in first:
                reason, detail = "duplicate", first[content]
            first.setdefault(content, place)
            kept, dropped = _sentences(text, params) if reason is None else ((), ())
            yield Previewed(corpus, document.file, document.row, text, reason, detail, kept, dropped)


def _sentences(text: str, params: SampleParams) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sentences of a text that are kept, and those that are dropped."""
    kept: list[str] = []
    dropped: list[str] = []
    for start, end in sentence_spans(text):
        words = text[start:end].split()
        fits = params.min_sentence_words <= len(words) <= params.max_sentence_words
        (kept if fits else dropped).append(" ".join(words))
    return tuple(kept), tuple(dropped)
