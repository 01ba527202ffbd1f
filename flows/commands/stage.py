"""`supmer stage NAME`: run one stage's function for `dvc repro`."""

import os

import click

from flows.completion import stage_names
from flows.dvc_state.local_inputs import MAPPING, is_listing
from flows.dvc_state.recovery import mend
from flows.lock import workspace_lock
from flows.run.session import open_session
from flows.workspace import enter
from storage.errors import InputError
from storage.sources.listing import LISTINGS


@click.command()
@click.argument("name", shell_complete=stage_names)
def command(name: str) -> None:
    """Run the function of stage NAME once, even if the stage is fresh: this is the command in dvc.yaml.

    DVC decides when to call it and records the result; people use `supmer run` or `dvc repro`.

    \b
    Example, as dvc.yaml has it:
      supmer stage sample
    """
    root = enter()
    with workspace_lock(root, f"supmer stage {name}") as lock:
        if lock.dead:
            mend(root, lock.dead)
        session = open_session((), keep=True)
        from flows.dvc_state.dag import require

        if is_listing(name) and session.sources_changed:  # DVC would record it for the old inputs.yaml
            raise InputError(
                f"params.yaml and {MAPPING} named different local sources; {MAPPING} is rewritten now: try again"
            )
        nodes = {node.name: node for node in session.pipeline.nodes()}
        require(nodes, name)
        if is_listing(name):
            from flows.run.listing import run_listing

            run_listing(session, nodes[name], ("dvc asked for it",))
            return
        if LISTINGS in nodes[name].inputs:
            from flows.run.listing import renew_listings

            renew_listings(session, nodes.values())
        from flows.run.request import Places
        from flows.run.runner import run_single

        run_single(session, lock, nodes[name], Places(os.cpu_count() or 1))
