"""`supmer trace` and `supmer uses` on a real DVC repository with real Parquet files."""

import hashlib
import json
import re

import pytest

from support.audited import BAD, FIRST, SECOND, overwrite


@pytest.fixture
def workspace(audited):
    return audited


class TestTrace:
    def test_a_sentence_is_followed_to_its_file(self, supmer, workspace):
        code, out, _ = supmer("trace", f"{FIRST}:1")
        sha256 = hashlib.sha256((workspace / "data/sources/corpus/news/news.txt").read_bytes()).hexdigest()
        assert code == 0
        assert out.splitlines() == [
            f"sentence {FIRST}:1",
            "      0  First of the kept",
            ">     1  Second of the kept",
            "         characters 19–37 of the document, 4 words",
            "      2  Third one.",
            f"  document  {FIRST}, split train, 10 words, 3 sentences, 49 bytes",
            "  a copy in news.txt row 3 was excluded: exact_duplicate",
            "  source    news: wheel:news==1.0, licence MIT",
            "  file      data/sources/corpus/news/news.txt, row 0, byte 0",
            f"            81 B, sha256 {sha256}",
        ]

    def test_neighbours_of_a_sentence_are_the_nearest_kept(self, supmer, workspace):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = workspace / "data/corpus/sentences/0.parquet"
        rows = [row for row in pq.read_table(path).to_pylist() if (row["document_id"], row["index"]) != (FIRST, 1)]
        overwrite(path, b"")
        pq.write_table(pa.Table.from_pylist(rows), path)
        (trace,) = json.loads(supmer("trace", f"{FIRST}:2", "--json")[1])["traces"]
        assert [row["index"] for row in trace["sentences"]] == [0, 2]

    def test_a_prefix_of_six_digits_is_enough(self, supmer):
        assert json.loads(supmer("trace", SECOND[:6].upper(), "--json")[1])["traces"][0]["document_id"] == SECOND

    def test_an_excluded_document_is_traced_with_its_reason(self, supmer):
        _, out, _ = supmer("trace", BAD)
        assert "  excluded: too_short (1 word)" in out.splitlines()
        assert "  file      data/sources/corpus/news/news.txt, row 2" in out.splitlines()

    def test_a_training_example_is_followed_to_all_its_sentences(self, supmer):
        _, out, _ = supmer("trace", "sp-next-0")
        assert out.startswith(f"example sp-next-0 of examples: sentences {FIRST}:0, {FIRST}:1, {SECOND}:0\n")
        assert out.count("\nsentence ") == 3

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("0" * 32, "no such document, neither kept nor excluded"),
            ("abc", "at least 6 hex digits are needed"),
            ("not an id", "at least 6 hex digits are needed"),
            (f"{FIRST}:99", "no such sentence is kept: the document was cut into 3"),
            (f"{BAD}:0", "the document was excluded"),
            (f"{FIRST}:x", "the index of a sentence"),
        ],
    )
    def test_what_cannot_be_traced_is_one_line(self, supmer, given, message):
        code, _, err = supmer("trace", given)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize("verb", ["trace", "uses"])
    @pytest.mark.parametrize("shard", ["0.parquet", "1.parquet"])
    def test_a_damaged_shard_is_named(self, supmer, workspace, verb, shard):
        path = workspace / "data/corpus/documents" / shard
        overwrite(path, path.read_bytes()[:-9])
        code, _, err = supmer(verb, FIRST)
        assert code == 2
        assert err.startswith(f"supmer: data/corpus/documents/{shard}: damaged")

    def test_an_ambiguous_prefix_lists_the_candidates(self, supmer, workspace):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = workspace / "data/corpus/documents/1.parquet"
        row = pq.read_table(path).to_pylist()[0] | {"document_id": FIRST[:8] + "0" * 24}
        overwrite(path, b"")
        pq.write_table(pa.Table.from_pylist([row]), path)
        code, _, err = supmer("trace", FIRST[:7])
        assert code == 2
        assert f"several ids begin with it, give more digits: {', '.join(sorted([FIRST, FIRST[:8] + '0' * 24]))}" in err


class TestUses:
    def test_every_dataset_that_saw_a_document_is_listed(self, supmer):
        listed = json.loads(supmer("uses", FIRST, "--json")[1])
        uses = {use["view"]: use for use in listed["uses"]}
        assert {view: use["rows"] for view, use in uses.items()} == {
            "documents": 1,
            "excluded": 1,
            "sentences": 3,
            "examples": 2,
        }
        assert uses["examples"]["first"] == ["sp-next-0", "sp-next-1"]
        assert uses["examples"]["columns"] == ["anchor_sentence_id", "choice_sentence_ids"]
        assert uses["examples"]["stage"] == "materialize"
        assert uses["sentences"]["first"] == [f"{FIRST}:0", f"{FIRST}:1", f"{FIRST}:2"]

    def test_lists_of_sentence_ids_count_too(self, supmer):
        _, out, _ = supmer("uses", SECOND)
        assert re.search(r"^  examples +1 +materialize +sp-next-0$", out, re.MULTILINE)

    def test_an_excluded_document_says_why_nothing_uses_it(self, supmer):
        _, out, _ = supmer("uses", BAD[:10])
        assert re.search(r"^  examples +0 +materialize", out, re.MULTILINE)
        assert "  excluded: too_short (1 word)" in out

    def test_an_unknown_document_is_exit_code_2(self, supmer):
        assert supmer("uses", "0123456789")[0] == 2
