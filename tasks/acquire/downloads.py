"""The objects of remote sources, fetched in shards: a large object alone, small ones together."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from storage import paths
from storage.hashing import file_hash, json_hash
from storage.sources.listing import ListedFile, read_listing
from storage.sources.objects import fetch_object
from storage.sources.source import NamedSource, parse_spec
from tasks.stage.contract import Record, Shard, ShardResult, Stage
from tasks.stage.progress import tell

FILES = "files"  # the subfolder of a shard that holds the source's files, apart from the record
SHARD_BYTES = 64 * 10**6
_LARGE = SHARD_BYTES // 8  # an object of this size is a shard of its own


def download_all(stage: Stage, sources: Iterable[NamedSource]) -> dict[str, list[ShardResult]]:
    """Fetch the listed objects of the remote sources; return the shards of each source by its parameter."""
    remote = [source for source in sources if source.spec.kind.is_remote]
    shards = [(source, shard) for source in remote for shard in _shards(stage.root, source)]
    if not shards:
        return {}
    results = stage.map("download", download, [shard for _, shard in shards], unit="bytes", live=True)
    fetched: dict[str, list[ShardResult]] = {source.parameter: [] for source in remote}
    for (source, _), result in zip(shards, results, strict=True):
        fetched[source.parameter].append(result)
    return fetched


def downloaded_files(results: Iterable[ShardResult]) -> list[Record]:
    """Return name, size and hash of every file that the shards of a source hold, sorted by name."""
    return sorted((file for result in results for file in result.record["files"]), key=lambda file: str(file["name"]))


def _shards(root: Path, source: NamedSource) -> list[Shard]:
    """Return the shards of a source. Names alone decide which small objects go together, so that few shards change."""
    files = read_listing(root, source)
    small = sum(file.bytes for file in files if file.bytes < _LARGE)
    groups: dict[str, list[ListedFile]] = {}
    for file in files:
        number = json_hash(file.name)
        digits = max(small // SHARD_BYTES, 0).bit_length()
        group = number if file.bytes >= _LARGE else f"{int(number[:8], 16) % 2**digits}"
        groups.setdefault(group, []).append(file)
    return [_shard(root, source, group) for _, group in sorted(groups.items())]


def _shard(root: Path, source: NamedSource, files: list[ListedFile]) -> Shard:
    objects = [{"name": file.name, "bytes": file.bytes, "etag": file.etag} for file in files]
    weight = sum(file.bytes for file in files)
    hint = {"role": source.role, "name": source.name, "spec": source.spec.text, "root": str(root)}
    name = f"{source.role}/{source.name}/{files[0].name}" + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    return Shard(name, {"location": source.spec.location, "objects": objects}, weight, hint)


def download(payload: Record, folder: Path) -> Record:
    """Fetch the objects of one shard into `folder`."""
    source = NamedSource(payload["role"], payload["name"], parse_spec(payload["spec"]))
    downloads, done, files = Path(payload["root"]) / paths.DOWNLOADS, 0, []
    for entry in payload["objects"]:
        file, target = ListedFile(**entry), folder / FILES / entry["name"]
        fetch_object(source, file, target, downloads, partial(_tell, folder, done))
        files.append({"name": file.name, "bytes": file.bytes, "sha256": file_hash(target)})
        done += file.bytes
    return {"files": files}


def _tell(folder: Path, before: int, there: int) -> None:
    tell(folder, before + there, "")
