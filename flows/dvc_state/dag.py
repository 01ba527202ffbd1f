"""The DAG as DVC reads it from dvc.yaml: the nodes in order, and the only handle to DVC's repository."""

from __future__ import annotations

import difflib
import inspect
import logging
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
from dvc.config import ConfigError
from dvc.dvcfile import load_file
from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.repo import Repo
from dvc.rwlock import rwlock
from dvc.stage import PipelineStage

from flows.dvc_state.local_inputs import MAPPING, is_listing
from flows.dvc_state.recovery import keep_lock_file
from storage.errors import InputError, first_line
from storage.lockfile import read_pipeline

logging.getLogger("dvc").setLevel(logging.ERROR)  # supmer reports errors in its own words

DVC_LOCK = Path(".dvc/tmp/lock")  # in the workspace, which is the working directory; DVC writes its process id to it
PATTERN_SIGNS = "[]*?{}"
COMMIT_SECONDS = 600  # a finished stage waits this long for another dvc command to end


@dataclass(frozen=True)
class Node:
    """One stage of dvc.yaml."""

    name: str
    description: str
    upstream: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Pipeline:
    """dvc.yaml and dvc.lock, through DVC itself."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if patterns := sorted(set(str(root)) & set(PATTERN_SIGNS)):
            signs = " and ".join(patterns)
            raise InputError(
                f"{root}: DVC and DuckDB take {signs} in a path for a pattern: rename or move the workspace"
            )
        try:
            self.repo: Any = Repo(str(root))
        except (DvcException, ConfigError) as error:
            raise InputError(f"{root}: DVC cannot open this workspace: {first_line(error)}") from error
        self._parsed: list[tuple[int, ...]] = []
        self._stages: Any = None
        self._thread = threading.RLock()  # DVC's locks exclude other processes, but fail between threads

    @property
    def has_git(self) -> bool:
        """True if the workspace is under git."""
        return not self.repo.config["core"].get("no_scm", False)

    def nodes(self) -> list[Node]:
        """Return the stages in an order in which they can run."""
        with self._reading():
            graph = self.repo.index.graph  # an edge points from a stage to a stage it depends on
        pipeline = graph.subgraph([stage for stage in graph if isinstance(stage, PipelineStage)])
        order = nx.lexicographical_topological_sort(pipeline.reverse(copy=True), key=lambda stage: str(stage.name))
        return [
            Node(
                name=stage.name,
                description=stage.desc or "",
                upstream=tuple(sorted(upstream.name for upstream in pipeline.successors(stage))),
                inputs=tuple(str(dep) for dep in stage.deps if not hasattr(dep, "params")),
                outputs=tuple(str(out) for out in stage.outs),
            )
            for stage in order
        ]

    def stage(self, name: str) -> Any:
        """Return DVC's stage object from the current dvc.yaml and dvc.lock, which are parsed again only if changed."""
        with self._reading():
            now = [_state(self.root / file) for file in ("dvc.yaml", "dvc.lock", "params.yaml", MAPPING)]
            if now != self._parsed:
                self._stages = load_file(self.repo, str(self.root / "dvc.yaml")).stages
                self._parsed = now
            return self._stages[name]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what DVC raises about damaged files into InputError; some damage passes its checks and fails later."""
        try:
            with dvc_errors():
                yield
        except (AttributeError, KeyError, TypeError):
            read_pipeline(self.root)  # raises InputError if dvc.yaml or dvc.lock is damaged
            raise

    @contextmanager
    def locked(self) -> Iterator[Any]:
        """Hold DVC's own lock, so that no dvc command changes anything meanwhile."""
        with self._thread, dvc_errors(), self.repo.lock:
            yield self.repo

    @contextmanager
    def claimed(self, name: str) -> Iterator[None]:
        """Claim a stage's inputs and outputs; DVC then refuses a concurrent `dvc repro` before it deletes anything."""
        with self.locked():
            stage = self.stage(name)
        read = [dep.fs_path for dep in stage.deps]
        write = [out.fs_path for out in stage.outs]
        hardlink = self.repo.config["core"].get("hardlink_lock", False)
        with self._thread, dvc_errors():
            claim = rwlock(self.repo.tmp_dir, self.repo.fs, " ".join(sys.argv), read, write, hardlink)
            claim.__enter__()
        try:
            yield
        finally:
            with self._thread, dvc_errors():
                claim.__exit__(None, None, None)

    def commit(self, name: str) -> None:
        """Write the stage's outputs to DVC's cache and its entry to dvc.lock.

        If DVC's lock is busy, wait for it: the outputs may be hours of work.
        """
        keep_lock_file(self.root)
        deadline = time.monotonic() + COMMIT_SECONDS
        with self._thread, dvc_errors():
            while True:
                try:
                    self.repo.commit(name, force=True)
                except LockError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(1)
                else:
                    return

    def record(self, name: str) -> None:
        """Commit a stage as `commit` does, inside a `dvc repro` that holds a read claim on the folder of its output."""
        keep_lock_file(self.root)
        with self.locked():
            stage = self.stage(name)
            stage.save()
            inspect.unwrap(type(stage).commit)(stage)
            stage.dump(update_pipeline=False)


def _state(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file changes; () if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


@contextmanager
def dvc_errors() -> Iterator[None]:
    """Turn DVC's exceptions into InputError with a message of one line."""
    try:
        yield
    except LockError as error:
        raise InputError(
            f"DVC is at work in this workspace ({_holder(error)} has its lock): wait for it, then try again"
        ) from error
    except DvcException as error:
        remedy = ""
        if "dvc.lock" in str(error):
            remedy = ": restore it from git, or delete it; `supmer run` then restores what DVC's cache holds"
        raise InputError(f"dvc: {first_line(error).rstrip('.')}{remedy}") from error


def _holder(error: LockError) -> str:
    """Return the process that holds DVC's lock, from the message about a claim or from the file of the whole lock."""
    import psutil

    if claim := re.search(r"\(PID (\d+)\): (.+)", str(error)):
        return f"process {claim[1]}, `{claim[2].strip()}`,"
    with suppress(OSError, ValueError, psutil.Error):
        number = int(DVC_LOCK.read_text())
        return f"process {number}, `{' '.join(psutil.Process(number).cmdline())}`,"
    return "another process"


def select(nodes: Sequence[Node], targets: Sequence[str], start: str | None, end: str | None) -> list[Node]:
    """Return the requested stages: the targets and all that they depend on, from `start` on and up to `end`."""
    by_name = {node.name: node for node in nodes}
    for name in (*targets, *(name for name in (start, end) if name)):
        require(by_name, name)
    chosen = set(by_name)
    if targets:
        chosen &= set(targets).union(*(ancestors(by_name, name) for name in targets))
    if end:
        chosen &= {end} | ancestors(by_name, end)
    if start:
        chosen &= {name for name in by_name if name == start or start in ancestors(by_name, name)}
    return [node for node in nodes if node.name in chosen]


def require(names: Iterable[str], name: str) -> None:
    """Raise InputError, suggesting the closest name, if a stage is not in dvc.yaml."""
    if name in names:
        return
    near = difflib.get_close_matches(name, list(names), 1)
    listed = ", ".join(stage for stage in names if not is_listing(stage))
    hint = f"did you mean {near[0]}?" if near else f"the stages are: {listed}"
    raise InputError(f"no stage {name} in dvc.yaml: {hint}")


def ancestors(by_name: dict[str, Node], name: str) -> set[str]:
    """Return the names of all stages that a stage depends on, directly or indirectly."""
    above: set[str] = set()
    waiting = list(by_name[name].upstream)
    while waiting:
        current = waiting.pop()
        if current not in above and current in by_name:
            above.add(current)
            waiting.extend(by_name[current].upstream)
    return above
