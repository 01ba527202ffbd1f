"""`supmer forget`: how documents are named, and what is refused."""

import json

import pytest

from storage.errors import InputError
from storage.lineage.finding import locate
from storage.queries.views import connect
from support.audited import BAD, FIRST, SECOND, TEXTS


@pytest.fixture
def workspace(audited):
    return audited


@pytest.fixture
def located(audited):
    def call(name):
        with connect(audited) as connection:
            [document] = locate(audited, connection, [name], lambda _corpus: "text")
            return document

    return call


@pytest.mark.parametrize(
    ("name", "document"),
    [(FIRST[:8], FIRST), (TEXTS[1], SECOND), ("Second of the", FIRST), (BAD, BAD), ("e" * 32, "e" * 32)],
)
def test_a_document_is_found_by_id_text_or_passage(located, name, document):
    assert located(name) == document


def test_what_names_no_document_is_refused(located):
    with pytest.raises(InputError, match="no document has this id, own id, URL or text"):
        located("nothing like it")


def add_rows(audited, *rows):
    """Add a file of JSON lines to the corpus."""
    folder = audited / "data/sources/corpus"
    manifest = json.loads((folder / "source.json").read_text())
    (folder / "news/more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest["sources"][0]["files"].append(
        {"name": "more.jsonl", "path": "data/sources/corpus/news/more.jsonl", "bytes": 1, "sha256": ""}
    )
    (folder / "source.json").unlink()
    (folder / "source.json").write_text(json.dumps(manifest))


def test_an_own_id_or_url_in_the_corpus_names_its_document(located, audited):
    rows = [{"id": 7, "text": TEXTS[0]}, {"id": 8, "url": "https://example.org/a", "text": f" {TEXTS[1]}\r\n"}]
    add_rows(audited, *rows)
    assert located("7") == FIRST
    assert located("https://example.org/a") == SECOND


def test_a_number_that_begins_one_id_and_is_the_own_id_of_another_document_is_refused(located, audited, monkeypatch):
    monkeypatch.setattr("storage.lineage.finding.find_document", lambda _connection, _name: FIRST)
    assert located("123456") == FIRST
    add_rows(audited, {"id": 123456, "text": TEXTS[1]})
    with pytest.raises(InputError, match="123456: several documents have it: name them by id"):
        located("123456")


def test_nothing_given_and_an_empty_reason_are_one_line(supmer):
    for arguments, message in (((), "no document given"), ((FIRST, "--why", " "), "--why: is empty")):
        code, _, err = supmer("forget", *arguments, *(() if "--why" in arguments else ("--why", "x")))
        assert code == 2
        assert message in err
        assert err.count("\n") == 1
