"""List the files of local sources without Prefect, so that it takes no longer than hashing the files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flows.dvc_state.freshness import assess
from flows.dvc_state.listings import keep_listings
from flows.dvc_state.local_inputs import is_listing
from flows.run.console import ConsoleReporter
from flows.run.execution import execute, prepare, refuse_changed
from flows.run.lineage_events import announce
from tasks.stage.contract import InlineFanOut

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node
    from flows.run.session import Session


def run_listing(session: Session, node: Node, why: tuple[str, ...]) -> None:
    """List the files of one local source; the caller updates dvc.lock."""
    pipeline, run_id = session.pipeline, str(uuid.uuid4())
    stage = prepare(pipeline, node, session.params, InlineFanOut(), ConsoleReporter())
    announce(pipeline, node, "START", run_id, datetime.now(UTC), {"why": list(why)})
    try:
        record = execute(stage, lambda: refuse_changed(pipeline, stage))
        keep_listings(pipeline, node.name)
        stage.settle()
    except BaseException as error:
        announce(pipeline, node, "FAIL", run_id, datetime.now(UTC), {"error": str(error)})
        raise
    announce(pipeline, node, "COMPLETE", run_id, datetime.now(UTC), record | {"why": list(why)})


def renew_listings(session: Session, nodes: Iterable[Node]) -> None:
    """List every local source whose listing is not fresh, and record the listing, for a `dvc repro` that skipped it."""
    for node in nodes:
        if is_listing(node.name) and (freshness := assess(session.pipeline, node.name)).state != "fresh":
            run_listing(session, node, freshness.reasons)
            session.pipeline.record(node.name)
