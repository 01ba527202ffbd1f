"""Shell completion of stages, profiles and parameter keys, read from the workspace as it is now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from flows.workspace import find_root
from storage.errors import InputError

_STAGE = re.compile(r"^  ([\w-]+):\s*$(?!\s*foreach:)", re.MULTILINE)


def stage_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the stages of dvc.yaml that begin with the incomplete word."""
    return _fitting(_STAGE.findall(_text("dvc.yaml")), incomplete)


def profile_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles in profiles/ that begin with the incomplete word."""
    root = _root()
    return _fitting((path.stem for path in (root / "profiles").glob("*.yaml")), incomplete) if root else []


def parameter_keys(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the keys of params.yaml that begin with the incomplete word, each with an equals sign."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        values = YAML(typ="safe").load(_text("params.yaml"))
    except YAMLError:
        return []
    return _fitting((f"{key}=" for key in _keys(values or {})), incomplete)


def _keys(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _text(name: str) -> str:
    root = _root()
    return (root / name).read_text() if root else ""


def _root() -> Path | None:
    try:
        return find_root()
    except InputError:  # outside a workspace there is nothing to complete, and a message would disturb the prompt
        return None
