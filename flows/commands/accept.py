"""`supmer accept STAGE --why TEXT`: record that a result stands although its code changed."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from flows.completion import stage_names
from flows.dvc_state.recovery import mend
from flows.lock import workspace_lock
from flows.run.session import open_session
from flows.workspace import enter
from storage.errors import InputError


@click.command()
@click.argument("stage", shell_complete=stage_names)
@click.option("--why", "reason", required=True, metavar="TEXT", help="Why the result stands; kept in the lineage.")
def command(stage: str, reason: str) -> None:
    """Record that the outputs of STAGE stand although its code changed.

    The stage is fresh afterwards, for `supmer` and for `dvc`. The reason goes to the lineage; `supmer why STAGE` shows
    it. Refused if data, parameters or outputs changed: then the stage has to run.

    \b
    Example:
      supmer accept metatrain --why "only comments changed"
    """
    reason = " ".join(reason.split())
    if not reason:
        raise InputError("--why: is empty: give the reason in a sentence")
    root = enter()
    with workspace_lock(root, f"supmer accept {stage}") as lock:
        if lock.dead:
            mend(root, lock.dead)
        session = open_session((), keep=True)
        from flows.dvc_state.dag import require
        from flows.dvc_state.freshness import assess
        from flows.dvc_state.listings import keep_listings
        from flows.run.lineage_events import announce

        nodes = {node.name: node for node in session.pipeline.nodes()}
        require(nodes, stage)
        freshness = assess(session.pipeline, stage)
        _refuse(stage, freshness.kinds, freshness.reasons)
        _refuse_damaged(session.root, stage)
        keep_listings(session.pipeline, stage)
        record = {"accepted": reason, "why": list(freshness.reasons)}
        announce(session.pipeline, nodes[stage], "OTHER", str(uuid.uuid4()), datetime.now(UTC), record)
        session.pipeline.commit(stage)
    click.echo(f"{stage}: accepted as it is: {'; '.join(freshness.reasons)}")


def _refuse(stage: str, kinds: frozenset[str], reasons: tuple[str, ...]) -> None:
    """Raise InputError unless only the code of a stage changed."""
    if not kinds:
        raise InputError(f"{stage}: is fresh: there is nothing to accept")
    if "new" in kinds:
        raise InputError(f"{stage}: has not run yet, there is no result to accept: `supmer run {stage}`")
    if kinds != {"code"}:
        raise InputError(f"{stage}: more than its code changed ({'; '.join(reasons)}): `supmer run {stage}`")


def _refuse_damaged(root: Path, stage: str) -> None:
    """Raise InputError if an output of the stage differs from dvc.lock; every file is hashed."""
    from storage.checks.verification import verify_outputs
    from storage.lockfile import read_pipeline

    pipeline = read_pipeline(root)
    declared = {name: body for name, body in pipeline.declared.items() if name == stage}
    locked = {name: entry for name, entry in pipeline.locked.items() if name == stage}
    alone = replace(pipeline, declared=declared, locked=locked)
    for finding in verify_outputs(alone, lambda _done, _total: None):
        raise InputError(f"{stage}: {finding.path}: {finding.detail}: {finding.remedy}")
