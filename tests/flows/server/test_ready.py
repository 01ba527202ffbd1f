"""A Prefect server that cannot start says why, and what to do."""

import os
import subprocess

import pytest

from flows.server.run_server import await_server, start_server
from storage.errors import InputError


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", "")  # it is set by the start, and restored after the test
    return tmp_path


def refusal(home):
    with pytest.raises(InputError) as refused:
        await_server(start_server(home, home / "server.log"), home / "server.log")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_garbage_in_its_database_names_the_remedy(home):
    (home / "prefect.db").write_bytes(b"garbage " * 1_000)
    message = f"Prefect's server did not start: {home / 'prefect.db'} is damaged: delete it; it holds the history of "
    assert refusal(home) == message + "runs, and no results"


def test_a_full_disk_is_named(home, monkeypatch):
    place = home / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", place], check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        monkeypatch.setenv("PREFECT_HOME", str(place))
        assert refusal(place).startswith("Prefect's server did not start: No space left on device: ")
    finally:
        subprocess.run(["umount", "-l", place], check=True)
