"""Options that the commands share: `-S stage.key=value`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from storage.errors import InputError

if TYPE_CHECKING:
    from tasks.changes import Change
    from tasks.config import Document
    from tasks.params import Params

PARAMS_FILE = "params.yaml"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def set_option(command: _Command) -> _Command:
    """Give a command `-S KEY=VALUE`, which reaches it as `settings`, a tuple of strings."""
    return click.option(
        "-S",
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set a parameter, for example -S sample.budget_mb=5. May be repeated.",
    )(command)


def overlaid(root: Path, settings: Sequence[str]) -> tuple[Params, dict[str, Any] | None]:
    """The parameters as the settings would make them, params.yaml untouched; also what it would then hold, if other."""
    document, params, found = _applied(root, settings)
    return params, dict(document.values) if found else None


def persisted(root: Path, settings: Sequence[str]) -> tuple[Params, list[str]]:
    """Write the settings into params.yaml, as `dvc exp run -S` does; also lines like `sample.budget_mb: 20 → 5`.

    Nothing is written if anything is refused, or if no value changes.
    """
    from tasks.config import save

    document, params, found = _applied(root, settings)
    if found:
        save(document)
    return params, [str(change) for change in found]


def _applied(root: Path, settings: Sequence[str]) -> tuple[Document, Params, list[Change]]:
    from tasks.config import read, validate

    document = read(root / PARAMS_FILE)
    if not settings:
        return document, validate(document), []
    from tasks.assignments import override
    from tasks.changes import changes

    changed = override(document, settings)
    params = validate(changed)
    try:
        before, after = validate(document).model_dump(), params.model_dump()
    except InputError:  # the settings mend what the file has wrong: only what is written can be compared
        before, after = document.values, changed.values
    return changed, params, changes(before, after)
