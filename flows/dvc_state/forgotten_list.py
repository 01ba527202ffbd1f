"""The list of forgotten documents in a workspace that has none yet: stage `sample` depends on the file."""

from pathlib import Path

from storage import paths
from storage.errors import InputError
from storage.lockfile import read_pipeline
from storage.records.forgotten import is_empty_list, write_forgotten


def require_list(root: Path) -> None:
    """Write an empty list if there is none; raise InputError if one that dvc.lock records is gone.

    A list that was lost is never taken as an empty one: the documents on it would come back.
    """
    path = root / paths.FORGOTTEN
    if path.exists():
        return
    for stage in read_pipeline(root).current():
        for used in stage.inputs:
            if used.path == paths.FORGOTTEN and used.md5 is not None and not is_empty_list(used.md5):
                raise InputError(f"{paths.FORGOTTEN}: is missing, and {stage.name} used one: restore it from git")
    write_forgotten(path, [])
