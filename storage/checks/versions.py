"""Versions of outputs: which content an earlier or later run wrote, and which tables were made from one another."""

from collections.abc import Collection, Iterator
from pathlib import Path

from storage.lineage.events import output_versions, read_events
from storage.lockfile import LockedStage, Pipeline, cache_folder, object_path


class KnownVersions:
    """The versions of outputs that runs in this workspace wrote: those in DVC's cache and in the lineage events."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cache = cache_folder(root)
        self._logged: set[str] | None = None

    def __contains__(self, md5: str) -> bool:
        if object_path(self._cache, md5).is_file():
            return True
        if self._logged is None:
            self._logged = output_versions(read_events(self._root))
        return md5 in self._logged


class Agreement:
    """Tells whether tables belong together: each is the version in dvc.lock, and was made from the others' versions.

    `stale` are the outputs whose content in the workspace is that of another version.
    """

    def __init__(self, pipeline: Pipeline, stale: Collection[str]) -> None:
        self._stale = frozenset(stale)
        self._stages = {stage.name: stage for stage in pipeline.current()}
        self._versions = {output.path: output.md5 for stage in pipeline.current() for output in stage.outputs}
        self._makers = {output.path: stage.name for stage in pipeline.current() for output in stage.outputs}

    def obstacle(self, outputs: Collection[str]) -> str | None:
        """Return why these outputs do not belong together, or None if they do."""
        for path in outputs:
            if path in self._stale:
                return f"{path} is of another version"
        together = {self._makers[path] for path in outputs if path in self._makers}
        between = {
            name
            for name in set[str]().union(*(self._above(name) for name in together))
            if name in together or self._above(name) & together
        }
        for name in sorted(between):
            for used in self._stages[name].inputs:
                current = self._versions.get(used.path)
                if self._makers.get(used.path) in between and current != used.md5:
                    return f"{name} was made from another version of {used.path}"
        return None

    def _above(self, name: str) -> set[str]:
        """Return a stage and all stages that it depends on, by dvc.lock."""
        above: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current not in above:
                above.add(current)
                waiting += self._upstream(self._stages[current])
        return above

    def _upstream(self, stage: LockedStage) -> Iterator[str]:
        return (self._makers[used.path] for used in stage.inputs if used.path in self._makers)
