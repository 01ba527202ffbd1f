"""The pool says of every sentence what the tables say, in bounded memory and in an order of its own."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import paths
from storage.errors import InputError
from storage.pools import sentence_pool
from storage.pools.row_arrays import Rows, RowWriter
from storage.pools.sentence_pool import Pool, PoolWriter, ShardFiles
from storage.task_formats import SPLITS
from support.anchor_corpus import FORMATS, write_corpus, write_table


def shards_of(root):
    for path in sorted((root / paths.SENTENCES).glob("*.parquet")):
        yield ShardFiles(root / paths.DOCUMENTS / path.name, path, root / paths.ASSIGNMENTS / path.name)


def build(root, hard=True):
    folder = root / "pool"
    with PoolWriter(folder) as writer:
        writer.gather(list(shards_of(root)))
        writer.list_anchors(FORMATS, hard=hard)
    return Pool(folder)


def read(root, path):
    return pa.concat_tables(pq.read_table(file) for file in sorted((root / path).glob("*.parquet"))).to_pylist()


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "a [folder] named *badly*", documents=40, repeated=0.3)


def every_row(pool):
    rows = np.arange(len(pool.sentences))
    return rows, pool.sentence_ids(rows).to_pylist(), pool.sentences.take_texts(rows).to_pylist()


def held_out(root):
    """Splits by document, and the texts of validation documents."""
    splits = {row["document_id"]: row["split"] for row in read(root, paths.DOCUMENTS)}
    rows = read(root, paths.SENTENCES)
    return splits, {row["text"] for row in rows if splits[row["document_id"]] == "validation"}


def test_every_sentence_has_its_id_text_and_clusters_but_for_training_ones_with_a_validation_text(corpus):
    pool = build(corpus)
    _, ids, texts = every_row(pool)
    splits, held = held_out(corpus)
    rows = read(corpus, paths.SENTENCES)
    kept = [row for row in rows if splits[row["document_id"]] == "validation" or row["text"] not in held]
    assert 0 < len(rows) - len(kept) < len(rows) / 3
    wanted = {f"{row['document_id']}:{row['index']}": row["text"] for row in kept}
    assert dict(zip(ids, texts, strict=True)) == wanted
    assigned = {f"{row['document_id']}:{row['index']}": row for row in read(corpus, paths.ASSIGNMENTS)}
    for name in FORMATS:
        found = [None if cluster < 0 else cluster for cluster in pool.sentences[name].tolist()]
        assert found == [assigned[one][name] for one in ids]


def test_members_hold_every_text_of_a_split_once_in_its_cluster(corpus):
    pool = build(corpus)
    _, ids, texts = every_row(pool)
    splits = {row["document_id"]: row["split"] for row in read(corpus, paths.DOCUMENTS)}
    for name in FORMATS:
        for split in SPLITS:
            group = pool.group("members", name, split)
            clusters = pool.sentences[name]
            wanted = {
                text
                for one, text, cluster in zip(ids, texts, clusters, strict=True)
                if splits[one.split(":")[0]] == split and cluster >= 0
            }
            assert Counter(texts[row] for row in group.rows) == Counter(wanted)
            for cluster in group.clusters:
                start, end = group.span(int(cluster))
                assert end > start
                assert (clusters[group.rows[start:end]] == cluster).all()


def test_sentences_to_ask_what_follows_of_have_a_different_next_one_and_a_document_of_four_texts(corpus):
    pool = build(corpus)
    _, ids, texts = every_row(pool)
    known = dict(zip(ids, texts, strict=True))
    for split in SPLITS:
        rows = pool.group("next", "sp", split).rows
        assert len(rows)
        for row in rows:
            document, index = ids[row].split(":")
            following = f"{document}:{int(index) + 1}"
            assert ids[row + 1] == following
            assert known[following] != known[ids[row]]
            assert len({text for one, text in known.items() if one.startswith(document)}) >= 4


def test_short_documents_do_where_no_wrong_choice_is_of_the_same_document(tmp_path):
    write_corpus(tmp_path, documents=40, sentences=3, repeated=0)
    assert not len(build(tmp_path, hard=True).group("next", "mc", "train").rows)
    pool = build(tmp_path, hard=False)
    assert len(pool.group("next", "mc", "train").rows)
    assert not len(pool.group("next", "sp", "train").rows)


def test_a_document_is_followed_across_batches(corpus, monkeypatch):
    whole = build(corpus)
    expected = [whole.document_column(name, np.arange(len(whole.sentences))) for name in ("first", "rows", "texts")]
    monkeypatch.setattr(sentence_pool, "_BATCH_ROWS", 2048)  # DuckDB's smallest
    write_corpus(corpus / "large", documents=700, sentences=12, shards=1)
    pool = build(corpus / "large")
    rows = np.arange(len(pool.sentences))
    ids = [one.split(":")[0] for one in pool.sentence_ids(rows).to_pylist()]
    counted = Counter(ids)
    assert pool.document_column("rows", rows).tolist() == [counted[one] for one in ids]
    assert [ids.index(one) for one in ids] == pool.document_column("first", rows).tolist()
    assert [len(column) for column in expected] == [len(whole.sentences)] * 3


def test_what_does_not_fit_into_memory_is_written_beside_the_database_and_nothing_changes(tmp_path, monkeypatch):
    write_corpus(tmp_path, documents=4000, sentences=12, shards=1)

    def listed():
        pool = build(tmp_path)
        groups = [(name, form, split) for name in ("members", "next") for form in ("sp", "mc") for split in SPLITS]
        return every_row(pool)[1], [pool.group(*one).rows.tolist() for one in groups]

    whole = listed()
    monkeypatch.setattr(sentence_pool, "_MEMORY", "40MB")
    assert listed() == whole
    real = sentence_pool.scratch_database

    def without_disk(*arguments):
        connection = real(*arguments)
        connection.execute("SET max_temp_directory_size = '0KB'")
        return connection

    monkeypatch.setattr(sentence_pool, "scratch_database", without_disk)
    with pytest.raises(duckdb.OutOfMemoryException):  # so it was on disk
        listed()


def test_the_order_of_rows_in_a_shard_does_not_matter(corpus):
    before = every_row(build(corpus))[1:]
    for path in (paths.SENTENCES, paths.ASSIGNMENTS, paths.DOCUMENTS):
        for file in (corpus / path).glob("*.parquet"):
            write_table(file, pq.read_table(file).to_pylist()[::-1])
    assert every_row(build(corpus))[1:] == before


@pytest.mark.parametrize(("path", "stage"), [(paths.ASSIGNMENTS, "cluster"), (paths.DOCUMENTS, "sample")])
def test_a_sentence_without_document_or_clusters_is_refused(corpus, path, stage):
    file = min((corpus / path).glob("*.parquet"))
    write_table(file, pq.read_table(file).to_pylist()[1:])
    with pytest.raises(InputError, match=rf"{file.name}: nothing on sentence \w+:\d+: `supmer run --force {stage}`"):
        build(corpus)


def test_only_arrays_and_a_summary_are_left(corpus):
    build(corpus)
    left = {path.name for path in (corpus / "pool").iterdir()}
    assert "rows.duckdb" not in left
    assert "spill" not in left


def test_rows_come_back_as_they_were_written(tmp_path):
    batches = [(["a", "", "żółć"], [1, 2, 3]), ([], []), (["long " * 50], [-4])]
    with RowWriter(tmp_path, {"number": "i4"}) as writer:
        for texts, numbers in batches:
            writer.append(pa.array(texts, pa.string()), {"number": np.array(numbers, np.int64)})
        writer.append(pa.array(["x", "kept", "y"]).slice(1, 1), {"number": np.array([9])})
    rows = Rows(tmp_path, {"number": "i4"})
    assert rows.texts.to_pylist() == ["a", "", "żółć", "long " * 50, "kept"]
    assert rows["number"].tolist() == [1, 2, 3, -4, 9]
    assert rows.take_texts(np.array([4, 2, 2])).to_pylist() == ["kept", "żółć", "żółć"]
    assert len(rows) == 5


def test_rows_may_be_none(tmp_path):
    with RowWriter(tmp_path, {"number": "i4"}):
        pass
    rows = Rows(tmp_path, {"number": "i4"})
    assert len(rows) == 0
    assert rows["number"].tolist() == []
