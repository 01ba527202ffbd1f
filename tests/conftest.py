"""What all tests share: tiny models, a small params.yaml, a Prefect server."""

import os
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from flows.server.access import SERVER_KEY
from flows.server.kept_server import reserve, start_kept
from flows.server.run_server import LEAN
from flows.workspace import QUIET
from storage.signs_of_life import SILENCE
from support.made_once import made_once
from support.workspaces import KEY

READY_SECONDS = 300  # the first start migrates a database, and other tests may run beside it
# Before torch is imported, here and in the processes that tests start: threads that wait by spinning take the cores
# from the other worker. On a busy machine a training test took 20 s of processor time that way, and 2 s without.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Tests start hundreds of Python processes: without bytecode each would compile our modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# On a busy machine any command may be silent for seconds: the line about that must not appear in what tests compare.
os.environ[SILENCE] = "3600"
sys.dont_write_bytecode = False

TESTS = Path(__file__).parent
# The files that take longest. Workers take whole files in this order, so that they end at about the same time. The
# second needs no Prefect server: its worker does not wait until the first has made Prefect's database.
LONGEST = (
    "flows/run/test_kill.py",
    "tasks/metatrain/test_training.py",
    "flows/run/test_run.py",
    "flows/run/test_worker.py",
    "test_docs.py",
    "flows/run/test_kill_stages.py",
    "flows/run/test_crash.py",
    "flows/dvc_state/test_local_sources.py",
    "flows/dvc_state/test_healing.py",
    "flows/run/test_metatrain_run.py",
    "flows/run/test_tune_run.py",
    "flows/run/test_nodes.py",
    "flows/run/test_fine_tuning_run.py",
    "flows/run/test_dask_deaths.py",
    "flows/run/test_object_storage.py",
    "flows/run/test_server_death.py",
    "flows/server/test_doors.py",
    "flows/commands/test_serve_command.py",
    "flows/commands/test_ui_command.py",
    "flows/dvc_state/test_recovery.py",
    "flows/run/test_dask.py",
    "flows/run/test_local_dask.py",
    "flows/takedown/test_forget_run.py",
    "tasks/stage/test_fanout.py",
    "tasks/report/test_report_page.py",
    "flows/commands/test_predict_command.py",
    "model/prompt/test_out_of_memory.py",
)


def pytest_collection_modifyitems(items):
    """Put the longest files first, and mark as slow what needs a Prefect server: such tests run real pipelines."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        if "prefect_home" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """A folder with `backbone`, a T5, and `embedder`, a BERT, both random and both with a tokenizer."""
    from support.tiny_models import save_backbone, save_embedder

    folder = tmp_path_factory.mktemp("models")
    save_backbone(folder / "backbone")
    save_embedder(folder / "embedder")
    return folder


@pytest.fixture
def one_thread():
    """For tiny models: more threads would only wait for each other."""
    from model.device import single_threaded

    with single_threaded():
        yield


@pytest.fixture
def one_core(one_thread, monkeypatch):
    """For stages that run tiny models: they see one core, and so take one thread."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0})


@pytest.fixture
def params_file(tmp_path, monkeypatch):
    """A small params.yaml in the working directory."""
    from support.parameter_file import MINIMAL

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "params.yaml"
    path.write_text(MINIMAL)
    return path


@contextmanager
def serving(home):
    """Prefect's API on a database in `home`, by its address."""
    environment = QUIET | {"PREFECT_HOME": str(home), SERVER_KEY: KEY}
    server = start_kept("flows.server.run_server", home / "server.log", reserve(0), **environment, **LEAN)
    try:
        wait_until_ready(server.access.api)
        yield server.access.api
    finally:
        server.let_go()
        server.process.wait()


def wait_until_ready(api):
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            httpx.get(f"{api}/health", timeout=5).raise_for_status()
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "no answer from Prefect's server"
            time.sleep(0.1)
        else:
            return


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory):
    """An empty Prefect database, to be copied: making one takes half a minute."""

    def make(home):
        with serving(home):
            pass

    return made_once(tmp_path_factory, "prefect", make)


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory, prefect_home):
    """A Prefect server for many runs: starting one for each takes most of a short run's time."""
    home = tmp_path_factory.mktemp("prefect") / "home"
    shutil.copytree(prefect_home, home)
    with serving(home) as api:
        yield api
