"""Git's history of a workspace: earlier versions of dvc.lock, and commits that contain a passage."""

import re
import subprocess
from collections.abc import Collection
from pathlib import Path

_PASSAGE = re.compile(r"[\w ,.;:()'-]{24,}")
_LONGEST_PASSAGE = 100


def lock_files(root: Path) -> dict[str, bytes]:
    """Return dvc.lock as each commit, of any branch, tag or experiment, that changed it has it; none without git."""
    commits = _git(root, "rev-list", "--all", "--", "dvc.lock").decode().split()
    return {commit: _git(root, "show", f"{commit}:./dvc.lock") for commit in commits}


def lock_file_at(root: Path, revision: str) -> bytes:
    """Return dvc.lock of a commit, branch or tag; nothing if there is none."""
    return b"" if revision.startswith("-") else _git(root, "show", f"{revision}:./dvc.lock")


def commits_that_name(locks: dict[str, bytes], versions: Collection[str]) -> list[str]:
    """Return the commits whose dvc.lock names one of the versions (md5)."""
    wanted = [version.encode() for version in versions]
    return [commit for commit, content in locks.items() if any(version in content for version in wanted)]


def commits_with_passage(root: Path, text: str) -> list[str]:
    """Return the commits that added or removed the longest plain passage of a text."""
    passages = sorted(_PASSAGE.findall(text), key=len)
    if not passages:
        return []
    passage = passages[-1].strip()[:_LONGEST_PASSAGE]
    return _git(root, "log", "--all", "--format=%H", f"-S{passage}").decode().split()


def _git(root: Path, *arguments: str) -> bytes:
    """Return the output of a git command; nothing if it fails, as without git or before the first commit."""
    try:
        asked = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:  # no git on this machine
        return b""
    return asked.stdout if asked.returncode == 0 else b""
