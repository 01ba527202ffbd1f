"""What nearly every verb starts with: the workspace, its parameters, its sources, its pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.options import overlaid, persisted
from flows.workspace import enter
from storage.inputs import sync_links
from tasks.params import Params

if TYPE_CHECKING:
    from flows.dag import Pipeline


@dataclass(frozen=True)
class Session:
    """A workspace, opened."""

    root: Path
    params: Params
    pipeline: Pipeline
    what_if: dict[str, Any] | None  # the parameters of a question that leaves params.yaml alone


def open_session(settings: Sequence[str], *, keep: bool) -> Session:
    """Enter the workspace with `-S` settings: kept in params.yaml by a run, only supposed by a question."""
    root = enter()
    what_if = None
    if settings and keep:
        params, changed = persisted(root, settings)
        for line in changed:
            click.echo(f"params.yaml: {line}", err=True)
    else:
        params, what_if = overlaid(root, settings)
    sync_links(root, params.acquire)
    from flows.dag import Pipeline

    return Session(root, params, Pipeline(root), what_if)
