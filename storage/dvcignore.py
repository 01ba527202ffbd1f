"""The paths that DVC ignores, by the patterns of the workspace's .dvcignore."""

from pathlib import Path

from pathspec import GitIgnoreSpec

IGNORE_FILE = ".dvcignore"


class Ignored:
    """A predicate that is true for paths, relative to the workspace, that DVC ignores."""

    def __init__(self, root: Path) -> None:
        path = root / IGNORE_FILE
        self._spec = GitIgnoreSpec.from_lines(path.read_text("utf-8").splitlines() if path.exists() else [])

    def __call__(self, path: str) -> bool:
        """True if DVC ignores the path; a folder is given with a slash at the end."""
        return self._spec.match_file(path)
