"""Objects behind URLs: what is listed, how a download goes on, and what is refused."""

import importlib.util
from dataclasses import replace
from functools import partial

import pytest

from storage.errors import InputError
from storage.sources import objects
from storage.sources.source import NamedSource, parse_spec
from support.object_storage import bucket_client, s3_server


def source(url):
    return NamedSource("corpus", "news", parse_spec(url))


@pytest.fixture(scope="module")
def s3_variables():
    with s3_server() as variables:
        yield variables


@pytest.fixture
def s3(s3_variables, monkeypatch):
    for name, value in s3_variables.items():
        monkeypatch.setenv(name, value)
    return s3_variables


def bucket(environment, name):
    """Make a bucket, and return the function that puts an object into it."""
    client = bucket_client(environment)
    client.create_bucket(Bucket=name)
    return partial(client.put_object, Bucket=name)


@pytest.mark.slow
def test_a_download_that_was_stopped_goes_on_after_its_last_whole_piece(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "PIECE_BYTES", 1000)
    content = bytes(range(256)) * 40
    bucket(s3, "pieces")(Key="folder/one.bin", Body=content)
    news = source("s3://pieces/folder")
    [listed] = objects.list_objects(news)
    assert (listed.name, listed.bytes, listed.sha256) == ("one.bin", len(content), "")

    def stop(there):
        if there >= 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        objects.fetch_object(news, listed, tmp_path / "one.bin", tmp_path / "downloads", stop)
    assert not (tmp_path / "one.bin").exists()
    told = []
    objects.fetch_object(news, listed, tmp_path / "one.bin", tmp_path / "downloads", told.append)
    assert told[0] == 3000
    assert told[-1] == len(content)
    assert (tmp_path / "one.bin").read_bytes() == content


@pytest.mark.slow
def test_an_object_that_changed_after_it_was_listed_is_refused(s3, tmp_path):
    put = bucket(s3, "changing")
    put(Key="folder/one.txt", Body=b"before")
    news = source("s3://changing/folder")
    [listed] = objects.list_objects(news)
    put(Key="folder/one.txt", Body=b"after!")
    with pytest.raises(InputError, match="changed after it was listed: run again"):
        objects.fetch_object(news, listed, tmp_path / "one.txt", tmp_path / "downloads", lambda _: None)
    assert not (tmp_path / "one.txt").exists()
    assert objects.list_objects(news) == [replace(listed, etag=objects.list_objects(news)[0].etag)]


@pytest.mark.slow
def test_hidden_objects_are_left_out_and_names_that_cannot_be_files_are_refused(s3):
    put = bucket(s3, "names")
    put(Key="a/.hidden/x.txt", Body=b"x")
    with pytest.raises(InputError, match="no such object, and no folder with objects in it"):
        objects.list_objects(source("s3://names/a"))
    put(Key="b/x", Body=b"x")
    put(Key="b/x/y", Body=b"y")
    with pytest.raises(InputError, match="'x' is an object and also the folder of 'x/y'"):
        objects.list_objects(source("s3://names/b"))


@pytest.mark.parametrize(("kind", "package"), [("s3", "s3fs"), ("gs", "gcsfs")])
def test_a_missing_extra_is_named_in_one_line(kind, package, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else real(name))
    with pytest.raises(InputError, match=rf"^acquire\.corpus\.news: .* pip install 'supmer\[{kind}\]'$"):
        objects.list_objects(source(f"{kind}://bucket/folder"))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://", "not a bucket"),
        ("https://example.org/", "not the URL of one file"),
        ("https://example.org/x.csv#path=*.csv", "a web server lists none"),
        ("https://me:pw@example.org/x.csv", "credentials by the environment"),
        ("s3://key:secret@bucket/x", "credentials by the environment"),
    ],
)
def test_urls_that_name_nothing_or_hold_credentials_are_refused(url, told):
    with pytest.raises(InputError, match=told) as refused:
        parse_spec(url)
    assert "pw" not in str(refused.value)
    assert "secret@" not in str(refused.value)
