"""The session that nearly every verb opens: the workspace with its parameters, sources and pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.dvc_state.forgotten_list import require_list
from flows.dvc_state.local_inputs import check_sources, sync
from flows.lock import is_free
from flows.options import overlaid, persisted
from flows.workspace import enter
from tasks.params.schema import Params

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline


@dataclass(frozen=True)
class Session:
    """An open workspace."""

    root: Path
    params: Params
    pipeline: Pipeline
    what_if: dict[str, Any] | None  # parameters of a what-if question, which does not change params.yaml
    sources_changed: bool = False  # True: inputs.yaml named other local sources before


def open_session(settings: Sequence[str], *, keep: bool) -> Session:
    """Enter the workspace and return the session.

    If `keep` is true, the `-S` settings are written to params.yaml; the caller must hold the workspace lock. Otherwise
    they only apply to this session, as a what-if question.
    """
    root = enter()
    what_if, sources_changed = None, False
    params, supposed = overlaid(root, settings)
    if keep or is_free(root):
        require_list(root)
    if keep or (supposed is None and is_free(root)):  # a question changes nothing, least of all during a run
        sources_changed = sync(root, params.acquire)
    elif supposed is not None:
        check_sources(root, params.acquire)
    if keep:  # last, when nothing can be refused any more
        for line in persisted(root, settings)[1]:
            click.echo(f"params.yaml: {line}", err=True)
    else:
        what_if = supposed
    from flows.dvc_state.dag import Pipeline

    return Session(root, params, Pipeline(root), what_if, sources_changed)
