"""Verification of the prompts that are shipped with the project, by their own hashes."""

from collections.abc import Iterator
from pathlib import Path

from storage.checks.verification import Finding, Kind
from storage.prompts.shipped_prompt import problems, shipped_folders


def verify_shipped(root: Path) -> Iterator[Finding]:
    """Yield findings about the folders below `prompts/`: hashes, tensors, description, list of documents."""
    for folder in shipped_folders(root):
        for name, detail in problems(folder):
            path = folder / name
            kind: Kind = "changed" if path.exists() else "missing"
            yield Finding(kind, str(path.relative_to(root)), detail, f"`git checkout {folder.relative_to(root)}`")
