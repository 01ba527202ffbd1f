"""The stage `sample`: what it keeps, what it leaves out, and where each row says it came from."""

import hashlib

import orjson
import pyarrow.parquet as pq
import pytest

from storage import paths
from storage.hashing import document_id
from support.sample_room import lines, story
from tasks.sample.reading_units import shard_name


def test_documents_sentences_and_exclusions_account_for_every_document(mixed):
    record = mixed.run()
    documents, excluded, sentences = (
        mixed.rows(output) for output in (paths.DOCUMENTS, paths.EXCLUDED, paths.SENTENCES)
    )
    assert len(documents) == record["documents"] == 60
    assert len(sentences) == record["sentences"] == record["rows"] == 60 * 12
    assert record["excluded"] == {"empty": 2, "duplicate": 1, "near_duplicate": 1, "too_short": 1}
    assert sorted(row["reason"] for row in excluded) == ["duplicate", "empty", "empty", "near_duplicate", "too_short"]
    assert {row["document_id"] for row in documents} == {document_id(story(seed)) for seed in range(60)} - {
        row["document_id"] for row in excluded
    } | {row["document_id"] for row in excluded if row["reason"] == "duplicate"} | {
        row["duplicate_of"] for row in excluded if row["duplicate_of"]
    }


def test_every_sentence_is_found_at_its_place_in_its_document(mixed):
    mixed.run()
    texts = {document_id(story(seed)): story(seed) for seed in range(60)}
    texts |= {document_id(text): text for text in [story(21) + " One more word here."]}
    places = {(row["document_id"], row["index"]) for row in mixed.rows(paths.SENTENCES)}
    for row in mixed.rows(paths.SENTENCES):
        assert texts[row["document_id"]][row["start"] : row["end"]] == row["text"]
        assert row["words"] == len(row["text"].split())
        assert row["index"] == 0 or (row["document_id"], row["index"] - 1) in places


def test_locators_lead_back_to_the_text(mixed):
    mixed.run()
    for row in mixed.rows(paths.DOCUMENTS):
        path = mixed.files[row["source"], row["file"]]
        if row["file"].endswith(".jsonl"):
            line = path.read_bytes()[row["offset"] :].split(b"\n")[0]
            assert line == path.read_bytes().split(b"\n")[row["row"] - 1]
            assert document_id(orjson.loads(line)["text"]) == row["document_id"]
        elif row["file"].endswith(".parquet"):
            assert document_id(pq.read_table(path)["text"][row["row"] - 1].as_py()) == row["document_id"]


def test_what_is_left_out_keeps_its_text_where_it_is_found_nowhere_else(mixed):
    mixed.run()
    kept = {row["reason"]: row["text"] is not None for row in mixed.rows(paths.EXCLUDED)}
    assert kept == {"empty": True, "too_short": True, "near_duplicate": True, "duplicate": False}
    near = next(row for row in mixed.rows(paths.EXCLUDED) if row["reason"] == "near_duplicate")
    assert near["duplicate_of"] < near["document_id"]
    assert near["duplicate_of"] in {row["document_id"] for row in mixed.rows(paths.DOCUMENTS)}
    duplicate = next(row for row in mixed.rows(paths.EXCLUDED) if row["reason"] == "duplicate")
    assert (duplicate["row"], duplicate["detail"]) == (21, "own/a.jsonl row 4")


def test_near_duplicates_stay_where_removal_is_off(mixed):
    assert "near_duplicate" not in mixed.run(near={"enabled": False})["excluded"]


def test_a_chain_of_near_duplicates_leads_to_one_that_stays(workspace):
    text = story(5, 60)
    variants = [text.replace("number", f"number{'x' * tail}", tail) for tail in range(12)]
    workspace.add("a.jsonl", lines(variants))
    workspace.run()
    kept = {row["document_id"] for row in workspace.rows(paths.DOCUMENTS)}
    assert len(kept) < 6
    assert {row["duplicate_of"] for row in workspace.rows(paths.EXCLUDED)} <= kept


def test_sentences_of_other_lengths_are_counted_but_not_written(workspace):
    text = f"{story(1, 2)} Stop. {story(2, 2)}"
    workspace.add("a.jsonl", lines([text]))
    workspace.run()
    assert [row["index"] for row in workspace.rows(paths.SENTENCES)] == [0, 1, 3, 4]
    assert workspace.rows(paths.DOCUMENTS)[0]["sentences"] == 5


def test_white_space_inside_a_sentence_becomes_one_space(workspace):
    workspace.add(
        "a.txt", b"\r\n The river  crossed\tthe garden in the long and very early morning light of the\r\nlast day. \n"
    )
    workspace.run()
    row = workspace.rows(paths.SENTENCES)[0]
    assert row["text"] == "The river crossed the garden in the long and very early morning light of the last day."
    assert (row["start"], row["words"]) == (0, 17)


@pytest.mark.parametrize(("share", "expected"), [(0.001, 1), (0.25, 15), (0.999, 59)])
def test_the_share_of_validation_documents_is_exact(mixed, share, expected):
    record = mixed.run(validation_share=share)
    split = [row["split"] for row in mixed.rows(paths.DOCUMENTS)]
    assert split.count("validation") == record["validation_documents"] == expected
    assert split.count("train") == 60 - expected


def test_shards_say_where_they_come_from(mixed):
    mixed.run()
    for row in mixed.rows(paths.DOCUMENTS):
        assert (mixed.root / paths.SENTENCES / row["shard"]).is_file()
    path = mixed.root / paths.SENTENCES / shard_name("own", "a.jsonl", 0)
    provenance = orjson.loads(pq.ParquetFile(path).schema_arrow.metadata[b"supmer.provenance"])
    assert provenance["source"] == "own"
    sha256 = hashlib.sha256(mixed.files["own", "a.jsonl"].read_bytes()).hexdigest()
    assert [(part["name"], part["sha256"]) for part in provenance["parts"]] == [("a.jsonl", sha256)]


def test_metrics_and_plots_agree_with_the_tables(mixed):
    record = mixed.run()
    metrics = orjson.loads((mixed.root / paths.SAMPLE_METRICS).read_bytes())
    assert metrics == {key: value for key, value in record.items() if key != "rows"}
    lengths = [
        int(line.split(",")[1]) for line in (mixed.root / paths.SENTENCE_WORDS_PLOT).read_text().splitlines()[1:]
    ]
    assert sum(lengths) == sum(row["sentences"] for row in mixed.rows(paths.DOCUMENTS))
    assert (mixed.root / paths.EXCLUDED_PLOT).read_text().splitlines()[:2] == ["documents,reason", "2,empty"]


def test_nothing_is_left_behind(mixed):
    mixed.run()
    assert not list((mixed.root / ".supmer" / "tmp").rglob("*"))
