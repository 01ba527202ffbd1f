import pyarrow as pa
import pytest

from storage.errors import InputError
from storage.parquet import count_rows, open_parquet, provenance, write_shard

SCHEMA = pa.schema([("document_id", pa.string()), ("words", pa.int32())])


def batch(count):
    return pa.record_batch(
        {"document_id": [f"d{i}" for i in range(count)], "words": pa.array(range(count), pa.int32())}
    )


def test_equal_content_gives_equal_bytes_whatever_the_batches(tmp_path):
    write_shard(tmp_path / "a.parquet", SCHEMA, [batch(10)], {"file": "x", "sha256": "1"})
    write_shard(tmp_path / "b.parquet", SCHEMA, [batch(10)], {"sha256": "1", "file": "x"})
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_shard_says_where_it_came_from(tmp_path):
    assert write_shard(tmp_path / "a.parquet", SCHEMA, [batch(3), batch(4)], {"file": "x"}) == 7
    assert provenance(tmp_path / "a.parquet") == {"file": "x"}
    assert count_rows(tmp_path / "a.parquet") == 7


def test_an_empty_shard_keeps_its_schema(tmp_path):
    assert write_shard(tmp_path / "a.parquet", SCHEMA, [], {}) == 0
    assert open_parquet(tmp_path / "a.parquet").schema_arrow.names == SCHEMA.names


def test_a_failing_writer_leaves_no_file(tmp_path):
    def broken():
        yield batch(2)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_shard(tmp_path / "a.parquet", SCHEMA, broken(), {})
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_shard_is_named_in_one_line(tmp_path):
    path = tmp_path / "a.parquet"
    write_shard(path, SCHEMA, [batch(1000)], {})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"a\.parquet: not a whole Parquet file") as caught:
        open_parquet(path)
    assert "\n" not in str(caught.value)
