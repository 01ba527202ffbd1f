"""Lineage events: each run of a stage appends OpenLineage events to lineage/events.jsonl and can also send them."""

import json
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from storage import paths
from storage.counts import counted
from storage.errors import InputError

HTTP_SECONDS = 2.0
_ENDS = frozenset({"COMPLETE", "FAIL", "ABORT"})

logger = logging.getLogger("supmer.lineage")
_deaf: set[str] = set()  # endpoints that failed once in this process and are not tried again


@dataclass(frozen=True)
class Artifact:
    """A dependency or output with its hash in DVC; `rows` is None if it is not Parquet."""

    path: str
    md5: str
    bytes: int
    rows: int | None


@dataclass(frozen=True)
class StageEvent:
    """The start, completion, failure, death (ABORT) or acceptance (OTHER) of a stage.

    `record` holds rows, bytes, seconds, peak memory, outcome, why and error; for an acceptance, the person's reason.
    """

    stage: str
    state: Literal["START", "COMPLETE", "FAIL", "ABORT", "OTHER"]
    run_id: str
    time: datetime
    inputs: tuple[Artifact, ...] = ()
    outputs: tuple[Artifact, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    git_commit: str | None = None
    prefect_run_id: str | None = None
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StageRun:
    """A completed run, as recorded in the events."""

    stage: str
    time: str
    seconds: float | None
    git_commit: str | None
    prefect_run_id: str | None
    outcome: str | None
    rows: dict[str, int]
    peak_memory_bytes: int | None = None


def emit(root: Path, event: StageEvent) -> None:
    """Append an event to the log of the workspace, and send it to OPENLINEAGE_URL if that is set."""
    from storage.lineage.openlineage import run_event

    built = run_event(event)
    _append(root / paths.EVENTS, built)
    url = os.environ.get("OPENLINEAGE_URL", "").strip()
    if url and url not in _deaf:
        _send(url, built)


def _append(path: Path, event: Any) -> None:
    """Append one line under a lock; if a crash cut the last line short, end it first so that only that line is lost."""
    from filelock import lock_descriptor
    from openlineage.client.transport.file import FileConfig, FileTransport

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            lock_descriptor(file.fileno(), poll_interval=0.01)
            size = os.fstat(file.fileno()).st_size  # under the lock: another process may have appended
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                file.write(b"\n")
                file.flush()
            FileTransport(FileConfig(log_file_path=str(path), append=True)).emit(event)
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path}: lineage cannot be written ({error}): make the folder writable") from error


def _send(url: str, event: Any) -> None:
    """Post an event; log one warning if that fails.

    A thread limits the time to HTTP_SECONDS, because the timeout of the client does not include the name lookup.
    """
    failure: list[str] = ["no answer in time"]

    def post() -> None:
        from openlineage.client.transport.http import HttpConfig, HttpTransport

        settings: dict[str, Any] = {"url": url, "timeout": HTTP_SECONDS, "retry": {"total": 0, "status_forcelist": []}}
        if endpoint := os.environ.get("OPENLINEAGE_ENDPOINT"):
            settings["endpoint"] = endpoint
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            settings["auth"] = {"type": "api_key", "apiKey": key}
        try:
            transport = HttpTransport(HttpConfig.from_dict(settings))
            try:
                transport.emit(event)
            finally:
                transport.close()
            failure.clear()
        except Exception as error:  # noqa: BLE001 - no failure of an endpoint may stop the run
            response = getattr(error, "response", None)
            failure[0] = f"HTTP {response.status_code}" if response is not None else type(error).__name__

    thread = threading.Thread(target=post, name="openlineage", daemon=True)
    thread.start()
    thread.join(HTTP_SECONDS)
    if failure and url not in _deaf:
        _deaf.add(url)
        logger.warning(
            "lineage: OPENLINEAGE_URL fails (%s): this run's events go to %s alone", failure[0], paths.EVENTS
        )


def read_events(root: Path) -> list[dict[str, Any]]:
    """Return all events of the workspace in the order written; skip lines cut short by a crash, with one warning."""
    path = root / paths.EVENTS
    if not path.exists():
        return []
    events, broken = [], []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            event = _parsed(line)
            if event is None:
                broken.append(number)
            else:
                events.append(event)
    if broken:
        listed = ", ".join(map(str, broken[:5]))
        logger.warning("%s: skipped %s that a crash cut short: %s", paths.EVENTS, counted(len(broken), "line"), listed)
    return events


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def abort_unfinished(root: Path, why: str) -> list[str]:
    """Log an ABORT event for each run of a stage that started and never ended; return the names of the stages.

    Call this while holding the workspace lock: then every such run is dead.
    """
    running: dict[str, str] = {}
    for event in read_events(root):
        run_id, stage = event.get("run", {}).get("runId"), event.get("job", {}).get("name")
        if event.get("eventType") == "START" and isinstance(run_id, str) and isinstance(stage, str):
            running[run_id] = stage
        elif event.get("eventType") in _ENDS:
            running.pop(str(run_id), None)
    for run_id, stage in running.items():
        emit(root, StageEvent(stage, "ABORT", run_id, datetime.now(UTC), record={"error": why}))
    return list(running.values())


def run_that_made(events: list[dict[str, Any]], stage: str, versions: Mapping[str, str]) -> StageRun | None:
    """Return the last completed run of a stage that wrote all outputs in these versions (md5 by path), or None."""
    for event in reversed(events):
        if event.get("eventType") != "COMPLETE" or event.get("job", {}).get("name") != stage:
            continue
        written = {output.get("name"): output for output in event.get("outputs", [])}
        if all(_version(written.get(path, {})) == md5 for path, md5 in versions.items()):
            return _stage_run(stage, event, written)
    return None


def output_versions(events: list[dict[str, Any]]) -> set[str]:
    """Return the versions (md5) of all outputs that completed runs wrote."""
    return {
        version
        for event in events
        if event.get("eventType") == "COMPLETE"
        for output in event.get("outputs", [])
        if (version := _version(output))
    }


@dataclass(frozen=True)
class Acceptance:
    """A person's statement that a result stays valid although its code changed."""

    time: str
    reason: str
    changes: tuple[str, ...]


def acceptances(events: list[dict[str, Any]], stage: str, versions: Mapping[str, str]) -> list[Acceptance]:
    """Return the acceptances of a stage's outputs in these versions (md5 by path) since its last run, oldest first."""
    accepted: list[Acceptance] = []
    for event in events:
        if event.get("job", {}).get("name") != stage:
            continue
        written = {output.get("name"): output for output in event.get("outputs", [])}
        if event.get("eventType") == "COMPLETE":
            accepted.clear()
        elif event.get("eventType") == "OTHER" and all(
            _version(written.get(path, {})) == md5 for path, md5 in versions.items()
        ):
            record = event.get("run", {}).get("facets", {}).get("supmer_stage", {}).get("record", {})
            changes = tuple(map(str, record.get("why", ())))
            accepted.append(Acceptance(str(event.get("eventTime")), str(record.get("accepted", "")), changes))
    return accepted


def _version(dataset: Mapping[str, Any]) -> str | None:
    version: str | None = dataset.get("facets", {}).get("version", {}).get("datasetVersion")
    return version


def _stage_run(stage: str, event: dict[str, Any], written: Mapping[str, Any]) -> StageRun:
    facet = event.get("run", {}).get("facets", {}).get("supmer_stage", {})
    record = facet.get("record", {})
    code = event.get("job", {}).get("facets", {}).get("sourceCodeLocation", {})
    counts = {
        path: dataset.get("outputFacets", {}).get("outputStatistics", {}).get("rowCount")
        for path, dataset in written.items()
    }
    return StageRun(
        stage,
        str(event.get("eventTime")),
        record.get("seconds"),
        code.get("version"),
        facet.get("prefectRunId"),
        record.get("outcome"),
        {path: int(rows) for path, rows in counts.items() if rows is not None},
        record.get("peak_memory_bytes"),
    )
