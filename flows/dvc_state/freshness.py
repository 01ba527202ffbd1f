"""Fresh or not, and why: dvc.lock is the only truth; this module reads it out in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from dvc.stage.cache import RunCacheNotFoundError
from dvc_data.hashfile import load as load_object
from dvc_data.hashfile.tree import Tree

from flows.dvc_state.cache_objects import restore_whole
from flows.dvc_state.dag import Pipeline, dvc_errors
from flows.dvc_state.local_inputs import Slots, listing, slots_in
from storage.sources.local import SLOTS, in_words

State = Literal["fresh", "stale", "restorable"]
NAMED = 3  # how many changed files a reason names


@dataclass(frozen=True)
class Freshness:
    """What DVC would do with a stage, and every reason for it.

    `returning` is for those who only look ahead: the hashes of outputs that a restore would bring back unchanged.
    """

    stage: str
    state: State
    reasons: tuple[str, ...]
    returning: Mapping[str, Any] = field(default_factory=dict)


def assess(
    pipeline: Pipeline,
    name: str,
    params: Mapping[str, Any] | None = None,
    returning: Mapping[str, Any] = MappingProxyType({}),
) -> Freshness:
    """Compare a stage with dvc.lock.

    `params` stands in for params.yaml where a what-if is asked; inputs that are `returning` count as being there.
    """
    with pipeline.locked() as repo:
        stage = pipeline.stage(name)
        slots = slots_in(stage)
        if any(out.hash_info for out in stage.outs):
            back = {str(dep) for dep in stage.deps if str(dep) in returning and returning[str(dep)] == dep.hash_info}
            inputs = [*_input_reasons(stage, slots, params, back), *_source_reasons(pipeline.root, stage, slots)]
            outputs = list(_output_reasons(stage))
        else:
            back, inputs, outputs = set[str](), ["it has not run yet in this workspace"], []
        if not inputs and not outputs:
            used = [dep for dep in stage.deps if not slots.stands_for_nothing(str(dep))]
            kept = f"{_count(used, 'input')} and {_count(stage.outs, 'output')} are as dvc.lock has them"
            return Freshness(name, "fresh", (kept,))
        held = {} if inputs else {str(out): out.hash_info for out in stage.outs}
        known = params is None or not inputs  # not what supposed parameters would lead to
        restorable = known and _in_cache(repo, stage, back, changed=bool(inputs))
    if restorable:
        return Freshness(name, "restorable", (*inputs, *outputs), held)
    return Freshness(name, "stale", (*inputs, *outputs))


def restore(pipeline: Pipeline, name: str) -> bool:
    """Bring a restorable stage's outputs back from DVC's cache; not if what the cache holds of them is damaged."""
    with pipeline.locked() as repo, dvc_errors():
        restored = restore_whole(repo, pipeline.stage(name))
    if restored:
        pipeline.commit(name)
    return restored


def _count(things: Collection[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _in_cache(repo: Any, stage: Any, back: Collection[str], *, changed: bool) -> bool:
    with dvc_errors():
        if any(_is_missing(dep) and (changed or str(dep) not in back) for dep in stage.deps):
            return False
        if changed:  # then dvc.lock's outputs are not the ones wanted: look today's inputs up among earlier runs
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


def _input_reasons(stage: Any, slots: Slots, params: Mapping[str, Any] | None, back: Collection[str]) -> Iterator[str]:
    if stage.cmd_changed:
        yield "its command in dvc.yaml changed"
    for dep in stage.deps:
        if hasattr(dep, "params"):
            yield from _parameter_reasons(dep, params)
        elif str(dep) not in {*slots.now, *slots.before, *back} and (status := dep.workspace_status()):
            yield _changed("code" if str(dep).endswith(".py") else "input", dep, next(iter(status.values())))


def _source_reasons(root: Path, stage: Any, slots: Slots) -> Iterator[str]:
    """Local sources whose content changed; where a parameter sent a source to another slot, it is compared there."""
    deps = {str(dep): dep for dep in stage.deps if str(dep) in SLOTS}
    before = {(source.parameter, source.spec.text): deps[slot] for slot, source in slots.before.items()}
    for slot, source in slots.now.items():
        earlier, item = before.get((source.parameter, source.spec.text)), deps[slot]
        if _is_missing(item):
            yield f"{in_words(root, source)} is missing"
        elif earlier is None:
            continue  # its parameter changed, and is a reason already
        elif item.get_hash() != earlier.hash_info:
            yield f"{in_words(root, source)} changed{_difference(item, earlier)}"


def _is_missing(item: Any) -> bool:
    """Whether it is not there, or is a link that leads nowhere, which DVC takes for something."""
    return not item.exists or (str(item) in SLOTS and not Path(item.fs_path).exists())


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
    return f"{kind} {item} changed{_difference(item, item)}"


def _difference(item: Any, earlier: Any) -> str:
    """How many files of a folder differ from what dvc.lock has of `earlier`, and the first of them by name.

    As far as DVC's cache can tell: without the old listing, numbers alone.
    """
    if not earlier.hash_info or not earlier.hash_info.isdir or not item.isdir():
        return ""
    meta, now = listing(item)
    try:
        before = load_object(item.local_cache, earlier.hash_info)
    except FileNotFoundError:
        had = f"{earlier.meta.nfiles} files, {earlier.meta.size:,} bytes"
        return f": {meta.nfiles} files, {meta.size:,} bytes (before: {had})"
    old, new = _listing(before), _listing(now)
    differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    names = ", ".join(differing[:NAMED]) + (", …" if len(differing) > NAMED else "")
    return f": {len(differing)} of {len(old.keys() | new.keys())} files ({names})"


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
    """A section or, by a dotted key, one value of it; None where there is none."""
    found: Any = params
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def differences(old: Any, new: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """Every leaf that differs between two nested values: its dotted name, and both values as text."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}")
    elif old != new:
        yield name, _shown(old), _shown(new)


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
