"""Stage `local`: list the files of one local source, so that a change in them makes `acquire` stale."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from storage.errors import InputError
from storage.hashing import file_hash
from storage.sources.listing import ListedFile, local_sources, parameter_of, write_listing
from storage.sources.local import all_files
from tasks.stage.contract import Record, Stage


def run(stage: Stage) -> Record:
    """Hash the files of the source that the stage's only output is named after, and write the listing."""
    [output] = stage.outputs
    key = PurePosixPath(output).stem
    source = local_sources(stage.params.acquire).get(key)
    if source is None:
        raise InputError(
            f"{parameter_of(key)}: params.yaml names no local source there: `supmer status` updates the list"
        )
    paths = all_files(stage.root, source)
    total = sum(Path(path).stat().st_size for path in paths.values())
    with stage.reporter.progress(stage.name, total, "bytes") as bar:
        listed = []
        for file in _listed(paths):
            listed.append(file)
            bar.advance(file.bytes)
    write_listing(stage.output(output), listed)
    return {"files": len(listed), "bytes": sum(file.bytes for file in listed)}


def _listed(paths: dict[str, str]) -> Iterator[ListedFile]:
    """Yield the files in order, hashed on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        hashes = pool.map(lambda path: file_hash(Path(path)), paths.values())
        for (name, path), sha256 in zip(paths.items(), hashes, strict=True):
            yield ListedFile(name, Path(path).stat().st_size, sha256)
