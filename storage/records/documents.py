"""Reading of the documents of the corpus as a stream, each with its place in its file."""

from collections.abc import Iterator
from typing import NamedTuple

from storage.records.parts import Part
from storage.records.reader import Expected, WholeText, new_tuple, reader_of

ADVICE = "set sample.text_field, or sample.corpora.NAME.text_field for one corpus"


class Document(NamedTuple):
    """A document and its place: `row` counts from 1, `offset` is the position in bytes in the decompressed file."""

    text: str | None
    file: str
    row: int
    offset: int | None


def read_documents(part: Part, text_field: str) -> Iterator[Document]:
    """Yield the documents of a file or of a part of a file, in order; a text file is one document."""
    expected = Expected(text=text_field, advice=ADVICE)
    for values, file, row, offset, _ in reader_of(part, expected, text_as=WholeText):
        yield new_tuple(Document, (values[text_field], file, row, offset))


def normalized(text: str | None) -> str:
    """Return the text that ids, lengths and offsets refer to: line breaks as \\n, no white space around it."""
    if text is None:
        return ""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip()
