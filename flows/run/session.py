"""What nearly every verb starts with: the workspace, its parameters, its sources, its pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.dvc_state.local_inputs import sync
from flows.lock import is_free
from flows.options import overlaid, persisted
from flows.workspace import enter
from tasks.params.schema import Params

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline


@dataclass(frozen=True)
class Session:
    """A workspace, opened."""

    root: Path
    params: Params
    pipeline: Pipeline
    what_if: dict[str, Any] | None  # the parameters of a question that leaves params.yaml alone
    sources_changed: bool = False  # inputs.yaml named other local sources until now


def open_session(settings: Sequence[str], *, keep: bool) -> Session:
    """Enter the workspace with `-S` settings: kept in params.yaml by who holds the workspace, else only supposed."""
    root = enter()
    what_if, sources_changed = None, False
    params, supposed = overlaid(root, settings)
    if keep or (supposed is None and is_free(root)):  # a question changes nothing, least of all under a run's feet
        sources_changed = sync(root, params.acquire)
    if keep:  # last, when nothing is left to refuse
        for line in persisted(root, settings)[1]:
            click.echo(f"params.yaml: {line}", err=True)
    else:
        what_if = supposed
    from flows.dvc_state.dag import Pipeline

    return Session(root, params, Pipeline(root), what_if, sources_changed)
