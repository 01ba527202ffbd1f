"""The differences between two sets of parameters, and the profile nearest to given parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from storage.errors import InputError
from tasks.params.file import load
from tasks.params.reference import flatten
from tasks.params.schema import Params
from tasks.params.schema_base import shown

ABSENT = object()
PROFILES = "profiles"
DEFAULT = "quickstart"


@dataclass(frozen=True)
class Change:
    """A key whose values differ; `ABSENT` stands for an entry of a mapping that one side lacks."""

    key: str
    before: Any
    after: Any

    @property
    def is_empty(self) -> bool:
        """True if both sides are empty mappings or absent: the entries of the other side show the difference."""
        return all(side is ABSENT or side == {} for side in (self.before, self.after))

    def __str__(self) -> str:
        sides = ("–" if side is ABSENT else shown(side) for side in (self.before, self.after))
        return f"{self.key}: {' → '.join(sides)}"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return every key whose values differ, stage by stage; both sides as in params.yaml (`Params.model_dump()`)."""
    old, new = flatten(before), flatten(after)
    stages = {name: rank for rank, name in enumerate(Params.model_fields)}
    keys = sorted({**new, **old}, key=lambda key: stages.get(key.partition(".")[0], -1))
    compared = [Change(key, old.get(key, ABSENT), new.get(key, ABSENT)) for key in keys]
    return [change for change in compared if change.before != change.after and not change.is_empty]


def profiles(root: Path) -> dict[str, Path]:
    """Return the profiles of a workspace by name, the default first."""
    paths = {path.stem: path for path in sorted((root / PROFILES).glob("*.yaml"))}
    return {name: paths[name] for name in sorted(paths, key=lambda name: (name != DEFAULT, name))}


def profile(root: Path, name: str) -> Path:
    """Return the file of a profile; raise InputError with the nearest name if there is none."""
    known = profiles(root)
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"
    raise InputError(f"{name}: no such profile in {PROFILES}/; {hint}")


def purpose(path: Path) -> str:
    """Return the first line of a profile's leading comment."""
    lines = path.read_text("utf-8").splitlines()
    return lines[0].lstrip("# ").rstrip() if lines and lines[0].startswith("#") else ""


def nearest_profile(root: Path, params: Params) -> tuple[str, list[Change]] | None:
    """Return the profile with the fewest differences from the parameters, and these; None if there is no profile."""
    compared = [(name, changes(load(path).model_dump(), params.model_dump())) for name, path in profiles(root).items()]
    return min(compared, key=lambda pair: len(pair[1]), default=None)
