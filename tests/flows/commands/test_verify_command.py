"""`supmer verify` on a real DVC repository with real Parquet files."""

import json
import re
import shutil

import pytest

from flows.lock import workspace_lock
from storage.checks.versions import Agreement
from storage.lockfile import cache_folder, directory_object, object_path, read_pipeline
from storage.records.forgotten import Forgotten, write_forgotten
from support.audited import FIRST, SECOND, announce, dvc, overwrite


@pytest.fixture
def workspace(audited):
    return audited


class TestVerify:
    def findings(self, supmer, *options):
        code, out, _ = supmer("verify", "--json", *options)
        found = {(one["kind"], one["path"]) for one in json.loads(out)["findings"]}
        assert code == (1 if found else 0)
        return found

    def test_a_whole_workspace_is_verified(self, supmer):
        code, out, _ = supmer("verify")
        assert code == 0
        assert out == "verified: 6 outputs of 3 stages are whole; not made yet: metatrain\n"

    def test_a_missing_folder_and_a_missing_file_are_named(self, supmer, workspace):
        shutil.rmtree(workspace / "data/corpus/excluded")
        (workspace / "data/corpus/documents/1.parquet").unlink()
        assert self.findings(supmer) == {
            ("missing", "data/corpus/excluded"),
            ("missing", "data/corpus/documents/1.parquet"),
            ("invariant", "data"),  # sentences without their document
        }

    def test_a_line_says_what_is_wrong_and_what_to_do(self, supmer, workspace):
        (workspace / "data/metrics.json").unlink()
        code, out, err = supmer("verify")
        assert code == 1
        assert out == "missing    data/metrics.json: output of sample is gone: `supmer run` restores or recomputes it\n"
        assert err == "1 wrong\n"

    def test_an_edited_file_is_changed_and_a_shorter_one_truncated(self, supmer, workspace):
        overwrite(workspace / "data/metrics.json", b"[]")
        path = workspace / "data/examples/train/0.parquet"
        overwrite(path, path.read_bytes()[:-8])
        assert self.findings(supmer) == {
            ("changed", "data/metrics.json"),
            ("truncated", "data/examples/train/0.parquet"),
        }

    def test_a_flipped_byte_is_found(self, supmer, workspace):
        path = workspace / "data/examples/train/0.parquet"
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        overwrite(path, bytes(content))
        assert self.findings(supmer) == {("changed", "data/examples/train/0.parquet")}

    def test_an_extra_file_is_named(self, supmer, workspace):
        (workspace / "data/examples/train/left over.parquet").touch()
        assert ("extra", "data/examples/train/left over.parquet") in self.findings(supmer)

    def test_a_flipped_byte_in_the_cache_is_found_though_the_workspace_is_whole(self, supmer, workspace):
        md5 = read_pipeline(workspace).locked_output("data/metrics.json").md5
        cached = object_path(cache_folder(workspace), md5)
        overwrite(cached, b"{]")
        assert self.findings(supmer) == {("cache", str(cached.relative_to(workspace)))}

    def test_a_damaged_listing_in_the_cache_is_found_and_the_folder_still_compared(self, supmer, workspace):
        md5 = read_pipeline(workspace).locked_output("data/examples").md5
        listing = object_path(cache_folder(workspace), md5)
        overwrite(listing, listing.read_bytes()[:-3])
        assert self.findings(supmer) == {("cache", str(listing.relative_to(workspace)))}
        (workspace / "data/examples/train/more").touch()
        assert ("changed", "data/examples") in self.findings(supmer)

    def test_an_empty_cache_is_told_for_each_output_and_changes_are_still_found(self, supmer, workspace):
        shutil.rmtree(workspace / ".dvc/cache")
        uncached = {("cache", output.path) for stage in read_pipeline(workspace).current() for output in stage.outputs}
        assert len(uncached) == 6
        assert self.findings(supmer) == uncached
        path = workspace / "data/examples/train/0.parquet"
        overwrite(path, path.read_bytes()[:-8])
        assert self.findings(supmer) == uncached | {("truncated", "data/examples/train/0.parquet")}

    def test_an_object_that_the_cache_lacks_is_told_with_its_output(self, supmer, workspace):
        output = read_pipeline(workspace).locked_output("data/corpus/documents")
        listing = directory_object(cache_folder(workspace), output.md5)
        object_path(cache_folder(workspace), listing["0.parquet"]).unlink()
        code, out, _ = supmer("verify")
        assert code == 1
        said = "DVC's cache lacks 1 of 2 files (0.parquet), so that it could not be restored"
        assert out == f"cache      data/corpus/documents: {said}: `supmer run` puts it there\n"

    def test_an_output_that_is_not_meant_for_the_cache_is_not_missed_there(self, supmer, workspace):
        text = (workspace / "dvc.yaml").read_text()
        (workspace / "dvc.yaml").write_text(
            text.replace("metrics: [data/metrics.json]", "metrics: [{data/metrics.json: {cache: false}}]")
        )
        object_path(cache_folder(workspace), read_pipeline(workspace).locked_output("data/metrics.json").md5).unlink()
        assert self.findings(supmer) == set()

    def test_an_edit_through_a_hard_link_damages_the_cache_too(self, supmer, workspace):
        md5 = read_pipeline(workspace).locked_output("data/metrics.json").md5
        cached = object_path(cache_folder(workspace), md5)
        (workspace / "data/metrics.json").unlink()
        (workspace / "data/metrics.json").hardlink_to(cached)
        assert self.findings(supmer) == set()
        overwrite(workspace / "data/metrics.json", b"[]")
        assert self.findings(supmer) == {
            ("changed", "data/metrics.json"),
            ("cache", str(cached.relative_to(workspace))),
        }

    def test_objects_of_earlier_versions_are_checked_on_demand(self, supmer, workspace):
        stray = object_path(cache_folder(workspace), "ab" + "0" * 30)
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_text("not that")
        assert self.findings(supmer) == set()
        assert self.findings(supmer, "--cache") == {("cache", str(stray.relative_to(workspace)))}

    def test_a_changed_source_file_is_found_by_its_sha256(self, supmer, workspace):
        path = "data/sources/corpus/news/news.txt"
        overwrite(workspace / path, (workspace / path).read_bytes().replace(b"kept", b"kapt"))
        assert self.findings(supmer) == {("changed", path), ("source", path)}

    def test_rows_that_break_an_invariant_are_found(self, supmer, workspace):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = workspace / "data/corpus/sentences/0.parquet"
        rows = pq.read_table(path).to_pylist()
        rows[0]["end"] = 10_000
        rows[1]["document_id"] = "f" * 32
        rows[3] = rows[4]
        overwrite(path, b"")
        pq.write_table(pa.Table.from_pylist(rows), path)
        documents = workspace / "data/corpus/documents"
        overwrite(documents / "1.parquet", (documents / "0.parquet").read_bytes())
        _, out, _ = supmer("verify")
        broken = [line for line in out.splitlines() if line.startswith("invariant")]
        assert len(broken) == 4
        assert f"1 document ids occur more than once in documents: {FIRST}" in out
        assert f"1 sentences have a span outside their document: {FIRST}:0" in out
        assert f"1 sentence ids occur more than once in sentences: {SECOND}:1" in out
        assert re.search(rf"2 documents have sentences but are not in documents: .*{'f' * 32}", out)

    def test_progress_is_told_where_it_takes_long(self, supmer, monkeypatch):
        monkeypatch.setattr("flows.commands.verify.PROGRESS_SECONDS", 0.0)
        _, _, err = supmer("verify")
        assert re.search(r"^  outputs: \S+ kB of \S+ kB hashed$", err, re.MULTILINE)


class TestOtherVersions:
    """Outputs of another version are stale, and tables of different versions are not compared."""

    @pytest.fixture
    def earlier_lock(self, workspace):
        """Return the first dvc.lock, after sample has run again with another text and other rows."""
        lock = (workspace / "dvc.lock").read_bytes()
        program = (workspace / "make.py").read_text()
        (workspace / "make.py").write_text(program.replace("Third one.", "3."))
        dvc(workspace, "repro", "sample")
        return lock

    def test_after_the_checkout_of_another_commit_outputs_are_stale_and_nothing_is_wrong(
        self, supmer, workspace, earlier_lock
    ):
        (workspace / "dvc.lock").write_bytes(earlier_lock)
        code, out, err = supmer("verify")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0].startswith("stale      data/sources/corpus: of another version (md5 ")
        assert lines[0].endswith(": `supmer run` restores it, or makes it again")
        assert not [line for line in lines if line.startswith(("truncated", "changed", "invariant", "extra"))]
        assert lines[-1].startswith("verified: 2 outputs of 3 stages are whole; 4 stale: `supmer run` restores them")

    def test_an_edit_is_still_wrong(self, supmer, workspace, earlier_lock):
        (workspace / "dvc.lock").write_bytes(earlier_lock)
        path = workspace / "data/corpus/sentences/0.parquet"
        overwrite(path, path.read_bytes()[:-8])
        code, out, _ = supmer("verify", "--json")
        assert code == 1
        assert ("truncated", "data/corpus/sentences/0.parquet") in {
            (finding["kind"], finding["path"]) for finding in json.loads(out)["findings"]
        }

    def test_a_version_that_only_the_lineage_knows_is_stale_too(self, supmer, workspace, earlier_lock):
        announce(workspace, "sample")
        md5 = read_pipeline(workspace).locked_output("data/corpus/sentences").md5
        (workspace / "dvc.lock").write_bytes(earlier_lock)
        object_path(cache_folder(workspace), md5).unlink()
        stale = {finding["path"] for finding in json.loads(supmer("verify", "--json")[1])["stale"]}
        assert "data/corpus/sentences" in stale

    def test_an_output_that_dvc_lock_does_not_list_is_stale_if_a_run_wrote_it(self, supmer, workspace):
        before, _, _ = (workspace / "dvc.lock").read_text().partition("  materialize:")
        (workspace / "dvc.lock").write_text(before)
        code, out, _ = supmer("verify")
        assert code == 0
        assert "stale      data/examples: left by another version, and not in dvc.lock" in out

    @pytest.mark.usefixtures("earlier_lock")
    def test_tables_made_from_different_versions_do_not_belong_together(self, workspace):
        agreement = Agreement(read_pipeline(workspace), ())
        tables = ["data/examples", "data/corpus/sentences"]
        assert agreement.obstacle(tables) == "materialize was made from another version of data/corpus/sentences"
        assert agreement.obstacle(["data/corpus/documents", "data/corpus/sentences"]) is None

    def test_an_invariant_of_stale_tables_is_not_checked(self, supmer, workspace, earlier_lock):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = workspace / "data/corpus/documents/0.parquet"
        twice = pa.concat_tables([pq.read_table(path)] * 2)
        overwrite(path, b"")
        pq.write_table(twice, path)
        dvc(workspace, "commit", "-f", "sample")
        assert ("invariant", "data") in {
            (finding["kind"], finding["path"]) for finding in json.loads(supmer("verify", "--json")[1])["findings"]
        }
        (workspace / "dvc.lock").write_bytes(earlier_lock)
        code, out, _ = supmer("verify")
        assert code == 0
        assert (
            "unchecked  data: documents, sentences: not compared, because data/corpus/documents is of another version"
            in out
        )

    def test_a_run_under_way_is_mentioned(self, supmer, workspace):
        with workspace_lock(workspace, "supmer run"):
            assert "(`supmer run`, since " in supmer("verify")[2]


class TestForgotten:
    """A forgotten document that a table names is found, once `sample` has run with the list."""

    def test_a_table_that_names_a_forgotten_document_is_wrong_if_it_was_made_with_the_list(self, supmer, workspace):
        write_forgotten(workspace / "forgotten.csv", [Forgotten(FIRST, "2026-01-02", "a takedown")])
        assert supmer("verify")[0] == 0
        text = (workspace / "dvc.yaml").read_text()
        (workspace / "dvc.yaml").write_text(
            text.replace("deps: [data/sources/corpus, make.py]", "deps: [data/sources/corpus, forgotten.csv, make.py]")
        )
        dvc(workspace, "repro", "materialize")
        code, out, _ = supmer("verify", "--json")
        assert code == 1
        named = {finding["path"] for finding in json.loads(out)["findings"]}
        assert named == {"data/corpus/documents", "data/corpus/excluded", "data/corpus/sentences", "data/examples"}
