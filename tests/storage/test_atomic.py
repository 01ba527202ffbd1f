import errno
from pathlib import Path

import pytest

from storage.atomic import link_or_copy, publish, remove, replacing_file, write_bytes


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "kept.txt"
    write_bytes(path, b"old")

    def fail_halfway():
        with replacing_file(path) as beside:
            beside.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["kept.txt"]


def test_a_full_disk_is_told_with_the_file_and_what_to_do(tmp_path):
    path = tmp_path / "large.bin"

    def fill_the_disk():
        with replacing_file(path), Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(OSError, match=f"make room.*{path.name}") as caught:
        fill_the_disk()
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


def test_publishing_a_folder_replaces_the_one_that_stood_there(tmp_path):
    final, partial = tmp_path / "out", tmp_path / "out.partial-1"
    for folder, content in ((final, "old"), (partial, "new")):
        folder.mkdir()
        (folder / content).touch()
    publish(partial, final)
    assert names(tmp_path) == ["out"]
    assert names(final) == ["new"]


def test_publishing_over_a_read_only_linked_file_leaves_the_other_link_alone(tmp_path):
    cached, final, partial = tmp_path / "cached", tmp_path / "out", tmp_path / "out.partial-1"
    cached.write_text("old")
    cached.chmod(0o444)
    link_or_copy(cached, final)
    partial.write_text("new")
    publish(partial, final)
    assert final.read_text() == "new"
    assert cached.read_text() == "old"


def test_linking_shares_the_bytes_on_disk(tmp_path):
    source, target = tmp_path / "a", tmp_path / "deep" / "b"
    source.write_text("x")
    link_or_copy(source, target)
    assert source.stat().st_ino == target.stat().st_ino


def test_removing_a_link_to_a_folder_keeps_the_folder(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    remove(link)
    assert folder.is_dir()
    assert not link.is_symlink()
