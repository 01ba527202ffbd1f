import hashlib

from storage.hashing import document_id, file_hash, json_hash


def test_the_order_of_keys_does_not_change_a_json_hash():
    assert json_hash({"a": 1, "b": [2]}) == json_hash({"b": [2], "a": 1})
    assert json_hash({"a": 1}) != json_hash({"a": 2})


def test_a_file_hash_is_plain_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert file_hash(tmp_path / "x") == hashlib.sha256(b"abc").hexdigest()


def test_a_document_id_depends_on_the_text_alone_and_takes_lone_surrogates():
    assert document_id("text") == hashlib.sha256(b"text").hexdigest()[:32]
    assert len(document_id("\ud800")) == 32
