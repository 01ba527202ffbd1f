"""The report before this one: its figures, and the parameters that have changed since, from events and DVC's cache."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage import paths
from storage.lineage.events import read_events
from storage.lineage.stage_runs import StageFacts
from storage.lockfile import cache_folder, object_path

REPORT = "report"


@dataclass(frozen=True)
class PreviousReport:
    """An earlier report of this workspace.

    Attributes:
        time: when it was made.
        metrics: its figures; None if DVC's cache no longer holds them.
        changes: the parameters that differ: (stage, key, value then, value now).
    """

    time: str
    git_commit: str | None
    metrics: dict[str, Any] | None
    changes: tuple[tuple[str, str, str, str], ...]


def previous_report(root: Path, stages: Sequence[StageFacts], metrics: bytes) -> PreviousReport | None:
    """Return the report before the first one with these metrics; None if there is none.

    Making the same report again therefore names the same predecessor, so that equal inputs give equal pages.
    """
    events = [event for event in read_events(root) if event.get("eventType") == "COMPLETE"]
    current = hashlib.md5(metrics, usedforsecurity=False).hexdigest()
    before: int | None = None
    for place, event in enumerate(events):
        if event.get("job", {}).get("name") == REPORT:
            if _metrics_version(event) == current:
                break
            before = place
    if before is None:
        return None
    event = events[before]
    code = event.get("job", {}).get("facets", {}).get("sourceCodeLocation", {})
    return PreviousReport(
        str(event.get("eventTime")),
        code.get("version"),
        _metrics(root, _metrics_version(event)),
        tuple(_changes(events[:before], stages)),
    )


def _metrics_version(event: Mapping[str, Any]) -> str:
    for output in event.get("outputs", []):
        if output.get("name") == paths.REPORT_METRICS:
            return str(output.get("facets", {}).get("version", {}).get("datasetVersion", ""))
    return ""


def _metrics(root: Path, version: str) -> dict[str, Any] | None:
    try:
        metrics = json.loads(object_path(cache_folder(root), version).read_bytes())
    except (OSError, ValueError):
        return None
    return metrics if isinstance(metrics, dict) else None


def _changes(events: Sequence[Mapping[str, Any]], stages: Sequence[StageFacts]) -> list[tuple[str, str, str, str]]:
    """Return the parameters of each stage whose values differ from those of its last run among the events."""
    changes = []
    for stage in stages:
        runs = [event for event in events if event.get("job", {}).get("name") == stage.name]
        facets = runs[-1].get("run", {}).get("facets", {}) if runs else {}
        if "executionParameters" not in facets:
            continue  # nothing is known
        listed = facets["executionParameters"].get("parameters", [])
        then = {str(one.get("key")): str(one.get("value")) for one in listed}
        now = {key: str(value) for key, value in stage.parameters.items()}
        changes += [
            (stage.name, key, then.get(key, "–"), now.get(key, "–"))
            for key in sorted(then.keys() | now.keys())
            if then.get(key) != now.get(key)
        ]
    return changes
