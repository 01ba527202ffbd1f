"""Sources and a DVC remote behind a real S3 API: freshness by ETag, no credentials in files, a second clone."""

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from storage.sources.source import read_manifest
from support.object_storage import KEY, SECRET, bucket_client, holders, s3_server
from support.workspaces import BIN, Workspace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3():
    """A client of a server with two buckets, which the environment names."""
    with s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        client = bucket_client(environment)
        client.create_bucket(Bucket="texts")
        client.create_bucket(Bucket="cache")
        yield client


@pytest.fixture(scope="module")
def remote(template, s3, prefect_api, tmp_path_factory):
    """A workspace whose corpus and one dataset are in a bucket; every test leaves its stages fresh."""
    workspace = replace(template.copied_to(tmp_path_factory.mktemp("remote") / "workspace"), api=prefect_api)
    for path in sorted((workspace.root / "texts").iterdir()):
        s3.upload_file(str(path), "texts", f"corpus/deep/{path.name}")
    s3.upload_file(str(workspace.root / "labels.csv"), "texts", "labels.csv")
    settings = ("-S", "acquire.corpus.own=s3://texts/corpus#path=**/*.jsonl")
    workspace.run("run", *settings, "-S", "acquire.datasets.sms=s3://texts/labels.csv")
    return workspace


def test_objects_are_read_noticed_when_changed_and_carry_no_credentials(remote, s3):
    [own] = read_manifest(remote.root / "data/sources/corpus")
    assert [file.name for file in own.files] == ["deep/first.jsonl", "deep/second.jsonl"]
    for file in own.files:
        local = remote.root / "texts" / file.name.removeprefix("deep/")
        assert (remote.root / file.path).read_bytes() == local.read_bytes()
    assert {stage["action"] for stage in remote.status().values()} == {"fresh"}
    assert "up to date" in remote.run("status", program="dvc")
    s3.put_object(Bucket="texts", Key="corpus/deep/third.jsonl", Body=(remote.root / "texts/first.jsonl").read_bytes())
    acquire = remote.status()["acquire"]
    assert acquire["why"] == ["acquire.corpus.own (s3://texts/corpus) changed: 1 of 3 files (deep/third.jsonl)"]
    assert "s3://texts/corpus" in remote.run("status", program="dvc")
    remote.run("run")
    [own] = read_manifest(remote.root / "data/sources/corpus")
    assert [file.name for file in own.files] == ["deep/first.jsonl", "deep/second.jsonl", "deep/third.jsonl"]
    assert "acquire.corpus.own=s3://texts/corpus" in remote.run("lineage", "data/corpus/sentences")
    assert holders(remote.root, SECRET) == []
    assert holders(remote.root, KEY) == []


def test_a_second_clone_pulls_from_the_remote_and_finds_everything_cached(remote, s3, tmp_path):
    remote.run("remote", "add", "-d", "shared", "s3://cache/dvc", program="dvc")
    remote.git("add", ".")
    remote.git("commit", "--quiet", "-m", "A run")
    remote.run("push", program="dvc")
    second = tmp_path / "second"
    subprocess.run(["git", "clone", "--quiet", remote.root, second], check=True)
    clone = Workspace(second, remote.api)
    shutil.copytree(remote.root / "texts", second / "texts")
    clone.run("pull", program="dvc")
    assert {stage["action"] for stage in clone.status().values()} == {"fresh"}
    assert "ran" not in clone.run("run").split()


def refused(workspace, *settings, **environment):
    asked = subprocess.run(
        [BIN / "supmer", "run", "acquire", *(word for setting in settings for word in ("-S", setting))],
        cwd=workspace.root,
        env={name: value for name, value in (workspace.environment | environment).items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert "Traceback" not in asked.stdout + asked.stderr
    assert asked.returncode == 2, asked.stdout + asked.stderr
    return asked.stdout + asked.stderr


def test_what_cannot_be_read_is_refused_in_one_line(workspace, s3, prefect_api):
    served = replace(workspace, api=prefect_api)
    before = (served.root / "params.yaml").read_bytes()
    secret = refused(served, "acquire.corpus.own=https://user:hunter2@example.org/a.jsonl")
    assert "by the environment" in secret
    assert "hunter2" not in secret
    signed = refused(served, "acquire.corpus.own=https://example.org/a.jsonl?X-Amz-Signature=hunter2")
    assert "hunter2" not in signed
    assert (served.root / "params.yaml").read_bytes() == before
    assert "acquire.corpus.own: s3://texts/none" in refused(served, "acquire.corpus.own=s3://texts/none")
    s3.put_object(Bucket="texts", Key="a.jsonl", Body=b'{"text": "x"}\n')
    nobody = {name: None for name in os.environ if name.startswith("AWS_") and name != "AWS_ENDPOINT_URL"}
    alone = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    asked = refused(served, "acquire.corpus.own=s3://texts/a.jsonl", **nobody, **alone)
    assert "AWS_ACCESS_KEY_ID" in asked
