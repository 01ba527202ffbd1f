"""Each corpus can have a text field, a weight and a budget of its own."""

import orjson
import pytest

from storage import paths
from storage.errors import InputError
from support.sample_room import SampleRoom, lines, story
from tasks.params.schema import CorpusParams, SampleParams
from tasks.sample.corpus_settings import limits, text_field


@pytest.fixture
def room(tmp_path):
    room = SampleRoom(tmp_path)
    room.add("a.jsonl", lines([story(number) for number in range(200)]), source="alpha")
    room.add("b.jsonl", lines([story(1_000 + number) for number in range(200)]), source="beta")
    return room


def drawn(room, **changes):
    """Return the ids of the documents drawn from each corpus."""
    room.run(near={"enabled": False}, **changes)
    rows = room.rows(paths.DOCUMENTS)
    return {source: {row["document_id"] for row in rows if row["source"] == source} for source in ("alpha", "beta")}


def corpora(**settings):
    return {name: CorpusParams(**values) for name, values in settings.items()}


def test_each_corpus_has_its_own_text_field(tmp_path):
    room = SampleRoom(tmp_path)
    room.add("a.jsonl", lines([story(1)]), source="alpha")
    body = orjson.dumps({"Kommentar Text (EN)": story(2), "text": 5})
    room.add("b.jsonl", body + b"\n", source="beta")
    taken = drawn(room, corpora=corpora(beta={"text_field": "Kommentar Text (EN)"}))
    assert {source: len(ids) for source, ids in taken.items()} == {"alpha": 1, "beta": 1}


def test_an_entry_with_the_default_settings_changes_nothing_and_reuses_every_shard(room):
    plain = drawn(room, budget_mb=0.05)
    markers = room.markers("index") | room.markers("write")
    named = drawn(room, budget_mb=0.05, corpora=corpora(alpha={"weight": 1.0, "budget_mb": 9.0}))
    assert named == plain
    assert room.markers("index") | room.markers("write") == markers


def test_equal_weights_draw_as_no_weights_do(room):
    plain = drawn(room, budget_mb=0.05)
    assert drawn(room, budget_mb=0.05, corpora=corpora(alpha={"weight": 3.0}, beta={"weight": 3.0})) == plain


def test_texts_of_three_times_the_weight_are_drawn_about_three_times_as_often(room):
    taken = drawn(room, budget_mb=0.12, corpora=corpora(beta={"weight": 3.0}))
    assert 2 < len(taken["beta"]) / len(taken["alpha"]) < 4.5
    assert drawn(room, budget_mb=0.12, corpora=corpora(alpha={"weight": 1 / 3})) == taken


def test_a_larger_budget_keeps_what_a_smaller_one_drew(room):
    weighted = corpora(beta={"weight": 3.0})
    small, large = (drawn(room, budget_mb=budget, corpora=weighted) for budget in (0.05, 0.1))
    assert small["alpha"] < large["alpha"]
    assert small["beta"] < large["beta"]


def test_a_corpus_gives_no_more_than_its_own_budget_and_the_others_fill_the_rest(room):
    record = room.run(near={"enabled": False}, budget_mb=0.1, corpora=corpora(alpha={"budget_mb": 0.02}))
    sizes = {name: figures["bytes"] for name, figures in record["sources"].items()}
    assert 0.018e6 < sizes["alpha"] <= 0.02e6
    assert 0.078e6 < sizes["beta"] <= 0.1e6 - sizes["alpha"]
    assert record["excluded"] == {"not_drawn": 400 - record["documents"]}


def test_near_duplicates_and_validation_are_taken_from_the_drawn_texts_alone(room):
    copies = [story(number).replace(".", " .", 1) for number in range(200)]
    room.add("c.jsonl", lines(copies), source="gamma")
    record = room.run(budget_mb=1, corpora=corpora(gamma={"budget_mb": 0.03}, alpha={"weight": 2.0}))
    documents = room.rows(paths.DOCUMENTS)
    excluded = room.rows(paths.EXCLUDED)
    assert len(documents) + len(excluded) == 600
    assert {row["reason"] for row in excluded} == {"near_duplicate", "not_drawn"}
    kept = {row["document_id"] for row in documents}
    assert all(row["duplicate_of"] in kept for row in excluded if row["reason"] == "near_duplicate")
    held_out = [row for row in documents if row["split"] == "validation"]
    assert len(held_out) == record["validation_documents"]


def test_a_budget_below_the_first_text_of_a_corpus_is_refused_by_its_key(room):
    with pytest.raises(InputError, match=r"^params.yaml: sample.corpora.beta.budget_mb: 0.0001: no text fits \(the"):
        drawn(room, corpora=corpora(beta={"budget_mb": 0.0001}))


def test_settings_that_are_left_out_are_those_of_all_corpora():
    params = SampleParams(text_field="body", corpora=corpora(news={"weight": 2.0}))
    assert text_field(params, "news") == text_field(params, "other") == "body"
    assert limits(params).weights == {"news": 2.0}
    assert limits(params).budgets == {}
    assert params.model_dump()["corpora"] == {"news": {"weight": 2.0}}
