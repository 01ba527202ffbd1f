import json
import logging
import socket
import subprocess
import sys
import threading
import time
import uuid
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from storage.errors import InputError
from storage.lineage import events as lineage
from storage.lineage.events import Artifact, StageEvent, emit, read_events, run_that_made
from storage.paths import EVENTS


def stage_event(state="COMPLETE", **changes):
    values = {
        "stage": "sample",
        "state": state,
        "run_id": str(uuid.uuid4()),
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "inputs": (Artifact("data/sources/corpus", "aa.dir", 10, None),),
        "outputs": (Artifact("data/corpus/documents", "bb.dir", 20, 5),),
        "parameters": {"seed": 1, "sample": {"budget_mb": 2.5, "near": {"rows": 8}}},
        "git_commit": "c" * 40,
        "prefect_run_id": "prefect-1",
        "record": {"seconds": 1.5, "outcome": "ran", "why": ["parameter seed changed"]},
    }
    return StageEvent(**(values | changes))


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch):
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(lineage, "_deaf", set())


@pytest.fixture
def endpoint(monkeypatch):
    """A real server; `received` holds (path, headers, event), `status` what it answers."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(server.status)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.status = 201
    server.received = received
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def facets_of(event):
    yield from event["run"]["facets"].values()
    yield from event["job"]["facets"].values()
    for dataset in event["inputs"] + event["outputs"]:
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from dataset.get(kind, {}).values()


def test_an_event_holds_what_openlineage_asks_for(tmp_path):
    emit(tmp_path, stage_event())
    (event,) = read_events(tmp_path)

    assert event["eventType"] == "COMPLETE"
    assert event["eventTime"] == "2026-01-02T03:04:05+00:00"
    assert uuid.UUID(event["run"]["runId"])
    assert event["producer"].startswith("https://")
    assert event["schemaURL"].endswith("OpenLineage.json#/$defs/RunEvent")
    assert (event["job"]["namespace"], event["job"]["name"]) == ("supmer", "sample")
    assert all(facet["_producer"] == event["producer"] and "://" in facet["_schemaURL"] for facet in facets_of(event))
    (output,) = event["outputs"]
    assert output["name"] == "data/corpus/documents"
    assert output["facets"]["version"]["datasetVersion"] == "bb.dir"
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (5, 20)
    assert event["job"]["facets"]["sourceCodeLocation"]["version"] == "c" * 40
    parameters = {one["key"]: one["value"] for one in event["run"]["facets"]["executionParameters"]["parameters"]}
    assert parameters == {"seed": "1", "sample.budget_mb": "2.5", "sample.near.rows": "8"}
    assert event["run"]["facets"]["supmer_stage"]["record"]["why"] == ["parameter seed changed"]


def test_a_failure_carries_its_message(tmp_path):
    emit(tmp_path, stage_event("FAIL", outputs=(), record={"error": "disk full"}))
    (event,) = read_events(tmp_path)
    assert event["run"]["facets"]["errorMessage"]["message"] == "disk full"
    assert event["run"]["facets"]["errorMessage"]["programmingLanguage"] == "PYTHON"


def test_an_event_without_git_or_prefect_is_written_too(tmp_path):
    emit(tmp_path, stage_event("START", git_commit=None, prefect_run_id=None, inputs=(), outputs=(), record={}))
    (event,) = read_events(tmp_path)
    assert "sourceCodeLocation" not in event["job"]["facets"]


def test_a_line_cut_by_a_crash_is_skipped_with_a_warning_and_spoils_no_later_one(tmp_path, caplog):
    emit(tmp_path, stage_event())
    emit(tmp_path, stage_event())
    path = tmp_path / EVENTS
    path.write_bytes(path.read_bytes()[:-40])

    with caplog.at_level(logging.WARNING):
        assert len(read_events(tmp_path)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "lineage/events.jsonl: skipped 1 line that a crash cut short: 2"
    ]
    emit(tmp_path, stage_event("START"))
    assert [event["eventType"] for event in read_events(tmp_path)] == ["COMPLETE", "START"]


def test_threads_and_processes_append_whole_lines(tmp_path):
    event = stage_event(record={"why": ["x" * 20_000]})
    child = (
        "import sys, uuid; from pathlib import Path; from datetime import UTC, datetime\n"
        "from storage.lineage.events import StageEvent, emit\n"
        "for _ in range(20): emit(Path(sys.argv[1]), StageEvent('a', 'START', str(uuid.uuid4()), datetime.now(UTC), "
        "record={'why': 'y' * 20000}))"
    )
    process = subprocess.Popen([sys.executable, "-c", child, str(tmp_path)])
    threads = [threading.Thread(target=emit, args=(tmp_path, event)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.wait() == 0
    assert len(read_events(tmp_path)) == 40
    assert len((tmp_path / EVENTS).read_bytes().splitlines()) == 40


def test_a_log_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / EVENTS).mkdir(parents=True)
    with pytest.raises(InputError, match="lineage cannot be written"):
        emit(tmp_path, stage_event())


def test_events_go_to_the_endpoint_as_well(tmp_path, endpoint, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k")
    emit(tmp_path, stage_event())
    ((path, headers, event),) = endpoint.received
    assert path == "/api/v1/lineage"
    assert headers["Authorization"] == "Bearer k"
    assert [event] == read_events(tmp_path)


def test_a_refusing_endpoint_is_one_warning_and_is_not_asked_again(tmp_path, endpoint, caplog):
    endpoint.status = 500
    with caplog.at_level(logging.WARNING):
        emit(tmp_path, stage_event("START"))
        emit(tmp_path, stage_event())
    assert len(endpoint.received) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "lineage: OPENLINEAGE_URL fails (HTTP 500): this run's events go to lineage/events.jsonl alone"
    ]
    assert len(read_events(tmp_path)) == 2


def test_an_endpoint_that_never_answers_costs_its_time_limit_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(lineage, "HTTP_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent, caplog.at_level(logging.WARNING):
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        for _ in range(5):
            emit(tmp_path, stage_event())
        assert time.monotonic() - started < 4
        time.sleep(1.2)  # the request's own thread ends before the socket goes
    assert len(caplog.records) == 1
    assert len(read_events(tmp_path)) == 5


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense"])
def test_a_wrong_endpoint_never_fails_the_run(tmp_path, monkeypatch, caplog, url):
    monkeypatch.setenv("OPENLINEAGE_URL", url)
    emit(tmp_path, stage_event())
    assert len(caplog.records) == 1
    assert len(read_events(tmp_path)) == 1


def test_the_run_that_made_a_version_is_found(tmp_path):
    emit(tmp_path, stage_event(prefect_run_id="first"))
    emit(tmp_path, stage_event(prefect_run_id="other", outputs=(Artifact("data/corpus/documents", "cc.dir", 9, 4),)))
    emit(tmp_path, stage_event("FAIL"))
    events = read_events(tmp_path)

    made = run_that_made(events, "sample", {"data/corpus/documents": "bb.dir"})

    assert made is not None
    assert (made.prefect_run_id, made.seconds, made.rows) == ("first", 1.5, {"data/corpus/documents": 5})
    assert made.git_commit == "c" * 40
    assert run_that_made(events, "sample", {"data/corpus/documents": "dd.dir"}) is None
    assert run_that_made(events, "embed", {}) is None


def test_importing_the_module_does_not_import_openlineage():
    check = "import sys, storage.lineage.events; sys.exit('openlineage' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
