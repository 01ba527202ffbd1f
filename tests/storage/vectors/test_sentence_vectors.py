import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.parquet import provenance
from storage.sources.source import AcquiredSource, SourceFile
from storage.vectors.sentence_vectors import (
    BATCH_ROWS,
    Made,
    made_by,
    model_hash,
    read_vectors,
    refuse_bad_vectors,
    write_vectors,
)


def made(**changes):
    return Made(**{"model": "embedder", "model_hash": "ab", "dimension": 4, "dtype": "float16"} | changes)


def written(path, rows=10, **changes):
    ids = pa.table({"document_id": [f"d{row // 7}" for row in range(rows)], "index": pa.array(range(rows), pa.int32())})
    vectors = np.random.default_rng(0).standard_normal((rows, 4)).astype(changes.get("dtype", "float16"))
    assert write_vectors(path, ids, vectors, made(**changes)) == rows
    return ids, vectors


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_vectors_come_back_in_order_and_in_small_batches(tmp_path, dtype):
    path = tmp_path / "a.parquet"
    ids, vectors = written(path, 20_000, dtype=dtype)
    batches = list(read_vectors(path, ["document_id", "index"]))
    assert [first for first, _, _ in batches] == list(np.cumsum([0, *(batch.num_rows for _, batch, _ in batches[:-1])]))
    assert max(batch.num_rows for _, batch, _ in batches) <= BATCH_ROWS
    found = np.concatenate([matrix for _, _, matrix in batches])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors.astype(np.float32))
    assert [one for _, batch, _ in batches for one in batch["index"].to_pylist()] == ids["index"].to_pylist()


@pytest.mark.parametrize(("dtype", "stored"), [("float16", pa.float16()), ("float32", pa.float32())])
def test_the_column_is_a_fixed_size_list_and_says_what_made_it(tmp_path, dtype, stored):
    path = tmp_path / "a.parquet"
    written(path, dtype=dtype)
    assert pq.read_schema(path).field("embedding").type == pa.list_(stored, 4)
    said = {"stage": "embed", "model": "embedder", "model_hash": "ab", "dimension": 4, "dtype": dtype}
    assert provenance(path) == said


def test_a_shard_without_sentences_keeps_its_dimension(tmp_path):
    path = tmp_path / "a.parquet"
    written(path, 0)
    assert made_by([path]).dimension == 4
    assert list(read_vectors(path)) == []


def test_shards_of_different_models_are_refused_by_name(tmp_path):
    written(tmp_path / "a.parquet")
    written(tmp_path / "b.parquet", model_hash="cd")
    with pytest.raises(InputError, match=r"b\.parquet: not made in the same way as a\.parquet"):
        made_by(sorted(tmp_path.iterdir()))


def test_a_shard_that_does_not_say_its_model_is_refused(tmp_path):
    pq.write_table(pa.table({"embedding": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: does not say which model"):
        made_by([tmp_path / "a.parquet"])


def test_no_shards_are_an_error():
    with pytest.raises(InputError, match="data/embeddings: no shard"):
        made_by([])


@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (0.0, "is zero")]
)
def test_a_bad_vector_is_named_by_file_and_row(value, what):
    vectors = np.ones((5, 3), np.float32)
    vectors[2] = value
    with pytest.raises(InputError, match=rf"data/embeddings/a\.parquet: row 103: the vector .*{what}"):
        refuse_bad_vectors(vectors, "data/embeddings/a.parquet", 100)
    refuse_bad_vectors(vectors[:2], "", 0)


def test_a_model_is_known_by_its_files_not_by_its_place():
    files = [SourceFile(name, f"x/{name}", 1, sha) for name, sha in (("a", "1"), ("b", "2"))]
    one = AcquiredSource("backbone", "path:x", "", "x", tuple(files))
    other = AcquiredSource("backbone", "path:y", "MIT", "y", tuple(reversed(files)))
    changed = AcquiredSource("backbone", "path:x", "", "x", (files[0], SourceFile("b", "x/b", 1, "3")))
    assert model_hash(one) == model_hash(other) != model_hash(changed)
