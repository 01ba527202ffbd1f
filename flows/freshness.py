"""Fresh or not, and why: dvc.lock is the only truth; this module reads it out in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dvc.stage.cache import RunCacheNotFoundError
from dvc_data.hashfile import load as load_object
from dvc_data.hashfile.build import build
from dvc_data.hashfile.tree import Tree

from flows.dag import Pipeline, dvc_errors
from storage.atomic import remove

State = Literal["fresh", "stale", "restorable"]
NAMED = 3  # how many changed files a reason names


@dataclass(frozen=True)
class Freshness:
    """What DVC would do with a stage, and every reason for it."""

    stage: str
    state: State
    reasons: tuple[str, ...]


def assess(pipeline: Pipeline, name: str, params: Mapping[str, Any] | None = None) -> Freshness:
    """Compare a stage with dvc.lock; `params` stands in for params.yaml where a what-if is asked."""
    with pipeline.locked() as repo:
        stage = pipeline.stage(name)
        if any(out.hash_info for out in stage.outs):
            inputs, outputs = list(_input_reasons(stage, params)), list(_output_reasons(stage))
        else:
            inputs, outputs = ["it has not run yet in this workspace"], []
        if not inputs and not outputs:
            kept = f"{len(stage.deps)} inputs and {len(stage.outs)} outputs are as dvc.lock has them"
            return Freshness(name, "fresh", (kept,))
        restorable = params is None and _in_cache(repo, stage, changed=bool(inputs))
    return Freshness(name, "restorable" if restorable else "stale", (*inputs, *outputs))


def restore(pipeline: Pipeline, name: str) -> None:
    """Bring a restorable stage's outputs back from DVC's cache."""
    with pipeline.locked() as repo:
        stage = pipeline.stage(name)
        for out in stage.outs:
            if out.exists and out.workspace_status():  # DVC would ask a person before it overwrites a changed file
                remove(pipeline.root / str(out))
        with dvc_errors():
            repo.stage_cache.restore(stage)
    pipeline.commit(name)


def _in_cache(repo: Any, stage: Any, *, changed: bool) -> bool:
    with dvc_errors():
        if any(not dep.exists for dep in stage.deps):
            return False
        if changed:  # then dvc.lock's outputs are not the ones wanted: look today's inputs up among earlier runs
            stage.save_deps()
            for out in stage.outs:
                out.clear()
        try:
            repo.stage_cache.restore(stage, dry=True)
        except RunCacheNotFoundError:
            return False
    return True


def _input_reasons(stage: Any, params: Mapping[str, Any] | None) -> Iterator[str]:
    if stage.cmd_changed:
        yield "its command in dvc.yaml changed"
    for dep in stage.deps:
        if hasattr(dep, "params"):
            yield from _parameter_reasons(dep, params)
        elif status := dep.workspace_status():
            yield _changed("code" if str(dep).endswith(".py") else "input", dep, next(iter(status.values())))


def _output_reasons(stage: Any) -> Iterator[str]:
    for out in stage.outs:
        if status := out.status():
            yield _changed("output", out, next(iter(status.values())))


def _changed(kind: str, item: Any, status: str) -> str:
    if status == "deleted":
        return f"{kind} {item} is missing"
    if status == "not in cache" and item.exists and not item.changed_checksum():
        return f"{kind} {item} is not in DVC's cache"
    if status == "new":
        return f"{kind} {item} is new"
    if not item.exists:
        return f"{kind} {item} is missing"
    return f"{kind} {item} changed{_difference(item)}"


def _difference(item: Any) -> str:
    """How many files of a folder differ, and the first of them by name, as far as DVC's cache can tell."""
    if not item.hash_info or not item.hash_info.isdir or not item.isdir():
        return ""
    _, meta, now = build(item.local_cache, item.fs_path, item.fs, "md5", ignore=item.dvcignore, dry_run=True)
    try:
        before = load_object(item.local_cache, item.hash_info)
    except FileNotFoundError:
        return (
            f": {meta.nfiles} files, {meta.size:,} bytes (before: {item.meta.nfiles} files, {item.meta.size:,} bytes)"
        )
    old, new = _listing(before), _listing(now)
    differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    names = ", ".join(differing[:NAMED]) + (", …" if len(differing) > NAMED else "")
    return f": {len(differing)} of {len(old.keys() | new.keys())} files ({names})"


def _listing(tree: Any) -> dict[str, str]:
    assert isinstance(tree, Tree)
    return {"/".join(key): str(hash_info.value) for key, _, hash_info in tree}


def _parameter_reasons(dep: Any, params: Mapping[str, Any] | None) -> Iterator[str]:
    before = dep.hash_info.value or {}
    now = {name: params.get(name) for name in dep.params} if params is not None else dep.read_params(flatten=False)
    for name in dep.params:
        if name not in before:
            yield f"parameter {name} is new"
            continue
        for key, old, new in differences(before[name], now.get(name), name):
            yield f"parameter {key} changed: {old} → {new}"


def differences(old: Any, new: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """Every leaf that differs between two nested values: its dotted name, and both values as text."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}")
    elif old != new:
        yield name, _shown(old), _shown(new)


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
