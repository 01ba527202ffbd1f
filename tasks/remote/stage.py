"""Stage `remote`: list the objects behind one URL, so that a change in them makes `acquire` stale."""

from pathlib import PurePosixPath

from storage.errors import InputError
from storage.sources.listing import parameter_of, remote_sources, write_listing
from storage.sources.objects import list_objects
from tasks.stage.contract import Record, Stage


def run(stage: Stage) -> Record:
    """List the objects of the source that the stage's only output is named after; none is fetched."""
    [output] = stage.outputs
    key = PurePosixPath(output).stem
    source = remote_sources(stage.params.acquire).get(key)
    if source is None:
        raise InputError(f"{parameter_of(key)}: params.yaml names no URL there: `supmer status` updates the list")
    listed = list_objects(source)
    write_listing(stage.output(output), listed)
    return {"files": len(listed), "bytes": sum(file.bytes for file in listed)}
