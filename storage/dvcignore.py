"""What DVC does not look at: the patterns of the workspace's .dvcignore."""

from pathlib import Path

from pathspec import GitIgnoreSpec

IGNORE_FILE = ".dvcignore"


class Ignored:
    """Tells of a path, relative to the workspace, whether DVC leaves it out."""

    def __init__(self, root: Path) -> None:
        path = root / IGNORE_FILE
        self._spec = GitIgnoreSpec.from_lines(path.read_text("utf-8").splitlines() if path.exists() else [])

    def __call__(self, path: str) -> bool:
        """Whether a file is left out; of a folder this is asked with a slash at the end."""
        return self._spec.match_file(path)
