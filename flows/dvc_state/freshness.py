"""Tell whether a stage is fresh, and why; dvc.lock alone decides, and this module puts it into words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from dvc.stage.cache import RunCacheNotFoundError
from dvc_data.hashfile import load as load_object
from dvc_data.hashfile.tree import Tree

from flows.dvc_state.cache_objects import restore_whole
from flows.dvc_state.dag import Pipeline, dvc_errors
from flows.dvc_state.listings import listing
from flows.dvc_state.local_inputs import is_listing, source_in_words
from flows.dvc_state.remote_inputs import reaching
from storage import paths
from storage.counts import counted
from storage.lockfile import is_code
from storage.records.forgotten import read_forgotten

Kind = Literal["code", "input", "output", "parameter", "command", "new"]
State = Literal["fresh", "stale", "restorable"]
NAMED = 3  # a reason names this many changed files


@dataclass(frozen=True)
class Reason:
    """A reason why a stage is not fresh: a sentence, and the kind of thing that it is about."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Freshness:
    """The state of a stage according to DVC, with every reason for it.

    `kinds` are the kinds of the reasons. `returning` is for planning: the hashes of outputs that a restore would bring
    back unchanged.
    """

    stage: str
    state: State
    reasons: tuple[str, ...]
    kinds: frozenset[Kind] = frozenset()
    returning: Mapping[str, Any] = field(default_factory=dict)


def assess(
    pipeline: Pipeline,
    name: str,
    params: Mapping[str, Any] | None = None,
    returning: Mapping[str, Any] = MappingProxyType({}),
) -> Freshness:
    """Return the freshness of a stage compared with dvc.lock.

    `params` replaces params.yaml to answer a what-if question; inputs in `returning` count as present.
    """
    with pipeline.locked() as repo, reaching(stage := pipeline.stage(name)):
        if any(out.hash_info for out in stage.outs):
            back = {str(dep) for dep in stage.deps if str(dep) in returning and returning[str(dep)] == dep.hash_info}
            inputs, outputs = list(_input_reasons(pipeline.root, stage, params, back)), list(_output_reasons(stage))
        else:
            back, inputs, outputs = set[str](), [_not_run_yet(pipeline.root, stage)], []
        if not inputs and not outputs:
            kept = f"{_count(stage.deps, 'input')} and {_count(stage.outs, 'output')} are as dvc.lock has them"
            return Freshness(name, "fresh", (kept,))
        cached = {} if inputs else {str(out): out.hash_info for out in stage.outs}
        known = params is None or not inputs  # the cache cannot be asked about hypothetical parameters
        restorable = known and _in_cache(repo, stage, back, changed=bool(inputs))
    reasons = [*inputs, *outputs]
    texts, kinds = tuple(reason.text for reason in reasons), frozenset(reason.kind for reason in reasons)
    if restorable:
        return Freshness(name, "restorable", texts, kinds, cached)
    return Freshness(name, "stale", texts, kinds)


def restore(pipeline: Pipeline, name: str) -> bool:
    """Restore a stage's outputs from DVC's cache; return False, restoring nothing, if a cached object is damaged."""
    with pipeline.locked() as repo, dvc_errors():
        restored = restore_whole(repo, pipeline.stage(name))
    if restored:
        pipeline.commit(name)
    return restored


def _count(things: Collection[Any], name: str) -> str:
    return counted(len(things), name)


def _in_cache(repo: Any, stage: Any, back: Collection[str], *, changed: bool) -> bool:
    _remove_empty_entries(Path(repo.stage_cache.cache_dir))
    with dvc_errors():
        if any(not dep.exists and (changed or str(dep) not in back) for dep in stage.deps):
            return False
        if changed:  # the outputs in dvc.lock are out of date: look for an earlier run with the current inputs
            stage.save_deps()
            for out in stage.outs:
                out.clear()
        elif back:
            return bool(stage.outs_cached())
        try:
            repo.stage_cache.restore(stage, dry=True)
        except RunCacheNotFoundError:
            return False
    return True


def _remove_empty_entries(run_cache: Path) -> None:
    """Remove the empty folders of DVC's cache of runs, which a kill may leave: DVC fails when it finds one."""
    for folder in run_cache.glob("*/*"):
        with suppress(OSError):  # it has an entry
            folder.rmdir()


def _not_run_yet(root: Path, stage: Any) -> Reason:
    if is_listing(stage.name):
        [path] = [str(dep) for dep in stage.deps if not is_code(str(dep))]
        return Reason("new", f"{source_in_words(root, stage.name, path)} has not been listed yet")
    return Reason("new", "it has not run yet in this workspace")


def _input_reasons(root: Path, stage: Any, params: Mapping[str, Any] | None, back: Collection[str]) -> Iterator[Reason]:
    if stage.cmd_changed:
        yield Reason("command", "its command in dvc.yaml changed")
    if _is_of_version_0_1(stage):
        yield Reason("code", "dvc.lock was written by version 0.1, which recorded code by module and not by folder")
    for dep in stage.deps:
        if hasattr(dep, "params"):
            yield from (Reason("parameter", text) for text in _parameter_reasons(dep, params))
        elif str(dep) not in back and (status := dep.workspace_status()):
            what = next(iter(status.values()))
            if is_code(str(dep)):
                if dep.hash_info or not _is_of_version_0_1(stage):
                    yield Reason("code", _changed(f"code {dep}", dep, what))
            elif is_listing(stage.name):
                yield Reason("input", _changed(source_in_words(root, stage.name, str(dep)), dep, what))
            elif str(dep) == paths.FORGOTTEN and not dep.hash_info and not read_forgotten(root / paths.FORGOTTEN):
                # Kind "code": a newer version reads the list, and an empty one changes no result.
                yield Reason("code", f"input {dep} is new, and empty")
            else:
                yield Reason("input", _changed(f"input {dep}", dep, what))


def _is_of_version_0_1(stage: Any) -> bool:
    """Return True if dvc.lock has none of the code folders that dvc.yaml names: version 0.1 listed modules."""
    folders = [dep for dep in stage.deps if is_code(str(dep)) and not str(dep).endswith(".py")]
    return bool(folders) and not any(dep.hash_info for dep in folders)


def _output_reasons(stage: Any) -> Iterator[Reason]:
    for out in stage.outs:
        if status := out.status():
            yield Reason("output", _changed(f"output {out}", out, next(iter(status.values()))))


def _changed(name: str, item: Any, status: str) -> str:
    if status == "deleted":
        return f"{name} is missing"
    if status == "not in cache" and item.exists and not item.changed_checksum():
        return f"{name} is not in DVC's cache"
    if status == "new" or not item.hash_info:
        return f"{name} is new"
    if not item.exists:
        return f"{name} is missing"
    return f"{name} changed{_difference(item)}"


def _difference(item: Any) -> str:
    """Return text that says how many files of a folder differ from dvc.lock and names the first of them.

    Without the old listing in DVC's cache (`supmer gc` deletes it), give only file counts and sizes.
    """
    if not item.hash_info or not item.hash_info.isdir or not item.isdir():
        return ""
    meta, now = listing(item)
    try:
        before = load_object(item.local_cache, item.hash_info)
    except FileNotFoundError:
        had = f"{counted(item.meta.nfiles, 'file')}, {counted(item.meta.size, 'byte')}"
        return f": {counted(meta.nfiles, 'file')}, {counted(meta.size, 'byte')} (before: {had})"
    old, new = _listing(before), _listing(now)
    differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    names = ", ".join(differing[:NAMED]) + (", …" if len(differing) > NAMED else "")
    return f": {len(differing)} of {counted(len(old.keys() | new.keys()), 'file')} ({names})"


def _listing(tree: Any) -> dict[str, str]:
    assert isinstance(tree, Tree)
    return {"/".join(key): str(hash_info.value) for key, _, hash_info in tree}


def _parameter_reasons(dep: Any, params: Mapping[str, Any] | None) -> Iterator[str]:
    before = dep.hash_info.value or {}
    now = {name: _at(params, name) for name in dep.params} if params is not None else dep.read_params()
    for name in dep.params:
        if name not in before:
            yield f"parameter {name} is new"
            continue
        for key, old, new in differences(before[name], now.get(name), name):
            yield f"parameter {key} changed: {old} → {new}"


def _at(params: Mapping[str, Any], key: str) -> Any:
    """Return a section or, for a dotted key, one of its values; None if there is none."""
    value: Any = params
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def differences(old: Any, new: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield every leaf that differs between two nested values: its dotted name, and both values as text."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        old, new = ({str(key): value for key, value in values.items()} for values in (old, new))  # 2024 is a name too
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}")
    elif old != new:
        yield name, _shown(old), _shown(new)


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
