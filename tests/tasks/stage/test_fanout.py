"""Shards as Prefect tasks: a real Prefect server, real worker processes."""

import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import psutil
import pytest

from support.workspaces import KEY
from tasks.stage import workers
from tasks.stage.contract import Job

TESTS = Path(__file__).parents[2]
SECONDS = 60
PROGRAM = textwrap.dedent("""
    import sys
    from pathlib import Path
    from flows.server import prefect_home
    from flows.server.run_server import await_server, start_server

    if __name__ == "__main__":
        root, function = Path(sys.argv[1]), sys.argv[2]
        prefect_home.prepare(root)
        await_server(start_server(root, root / "server.log"), root / "server.log")
        import orjson
        from support import pool_shards
        from prefect.task_runners import ThreadPoolTaskRunner
        from storage.errors import InputError
        from tasks.stage.contract import Shard, SilentReporter, Stage
        from tasks.stage.fanout import PrefectFanOut
        from tasks.stage.workers import worker_processes

        fan_out = PrefectFanOut(ThreadPoolTaskRunner(max_workers=2))
        stage = Stage("test", root, None, [], [], "f" * 64, "code", fan_out, SilentReporter())
        shards = [Shard(f"s{i}", {"tries": str(root / f"tries-{i}")}) for i in range(3)]
        with worker_processes(2):
            try:
                results = stage.map("step", getattr(pool_shards, function), shards)
                print(orjson.dumps([result.record for result in results]).decode())
            except InputError as error:
                print("refused:", error)
""")


@pytest.fixture
def run(tmp_path, prefect_api):
    def run(function):
        (tmp_path / "program.py").write_text(PROGRAM)
        environment = os.environ | {
            "PREFECT_API_URL": prefect_api,
            "PREFECT_API_AUTH_STRING": KEY,
            "PREFECT_HOME": str(tmp_path / "home"),
            "PYTHONPATH": f"{TESTS}:{TESTS.parent}",
            "PREFECT_LOCAL_STORAGE_PATH": str(tmp_path / "results"),
        }
        command = [sys.executable, tmp_path / "program.py", tmp_path, function]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return run


def tries(tmp_path):
    return [path.stat().st_size for path in sorted(tmp_path.glob("tries-*"))]


def test_shards_run_in_worker_processes_and_are_found_done_by_a_later_run(run, tmp_path):
    first = orjson.loads(run("well"))
    assert all(record["process"] != os.getpid() for record in first)
    assert orjson.loads(run("well")) == first
    assert tries(tmp_path) == [1, 1, 1]
    next((tmp_path / ".supmer/shards/test/step").glob("*/out.txt")).unlink()
    run("well")
    assert sorted(tries(tmp_path)) == [1, 1, 2]  # a kept result counts only while its files are there


def test_trouble_that_may_pass_is_tried_again(run, tmp_path):
    assert orjson.loads(run("well_the_third_time")) == [{}, {}, {}]
    assert tries(tmp_path) == [3, 3, 3]


def test_bad_input_is_not_tried_again(run, tmp_path):
    assert run("never") == "refused: row 3: bad"
    assert set(tries(tmp_path)) == {1}


def test_a_killed_worker_is_replaced_and_its_shard_tried_again(run, tmp_path):
    assert orjson.loads(run("killed_the_first_time")) == [{}, {}, {}]


def test_threads_of_a_dask_worker_take_turns_for_libraries_are_loaded_as_they_are_used(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(TESTS)
    jobs = [Job(f"s{i}", "support.pool_shards:alone", {}, {}, str(tmp_path / f"shard-{i}"), 1) for i in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert [record["beside"] for record in threads.map(workers.execute, jobs)] == [0, 0, 0, 0]


@pytest.mark.parametrize(("large", "others"), [(0, True), (1 << 50, False)], ids=["large", "small"])
def test_workers_that_have_grown_large_are_let_go_between_stages(tmp_path, monkeypatch, large, others):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.syspath_prepend(TESTS)
    monkeypatch.setattr(workers, "LARGE_BYTES", large)
    jobs = [
        Job(
            f"s{i}",
            "support.pool_shards:well",
            {"tries": str(tmp_path / f"tries-{i}")},
            {},
            str(tmp_path / f"shard-{i}"),
            1,
        )
        for i in range(2)
    ]
    with workers.worker_processes(1):
        first = workers.execute(jobs[0])["process"]
        workers.rest_workers()
        assert is_running(first) is not others
        assert (workers.execute(jobs[1])["process"] != first) is others


def test_workers_are_not_let_go_while_one_is_at_work(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.syspath_prepend(TESTS)
    monkeypatch.setattr(workers, "LARGE_BYTES", 0)
    go = tmp_path / "go"
    waiting = Job("s", "support.pool_shards:waits", {"until": str(go)}, {}, str(tmp_path / "waiting"), 1)
    later = Job("t", "support.pool_shards:well", {"tries": str(tmp_path / "tries")}, {}, str(tmp_path / "later"), 1)
    with workers.worker_processes(1), ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(workers.execute, waiting)
        wait_for(go.with_suffix(".seen"))
        workers.rest_workers()
        go.touch()
        assert under_way.result(SECONDS)["process"] == workers.execute(later)["process"]


def is_running(process):
    return psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE


def wait_for(path):
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.01)
