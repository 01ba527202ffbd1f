"""Forgetting of documents: what named them before, what still holds them, and the certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from storage import paths
from storage.atomic import remove, write_bytes
from storage.errors import InputError
from storage.hashing import json_hash

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline
    from flows.takedown.purging import Purged, RemoteCopy
    from storage.lineage.document_copies import Copies
    from storage.lineage.source_places import Place

Counts = dict[str, dict[str, int]]
"""The number of rows that name a document, by document and view."""


@dataclass
class Before:
    """The state before documents were forgotten, kept in a file until a certificate is written.

    Attributes:
        rows: the rows that named the documents.
        outputs: the md5 of each output.
        folders: prompts outside the pipeline's outputs that were tuned or exported from an influenced prompt.
        versions: the earlier versions that held the documents, as md5; known when their removal begins.
        objects: the objects of these versions in DVC's cache.
    """

    rows: Counts
    outputs: dict[str, str | None]
    folders: list[str]
    versions: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StillHeld:
    """What holds the documents although they are forgotten, because it is not for supmer to change."""

    sources: list[Place]
    remotes: list[RemoteCopy]
    commits: list[str]
    folders: list[str]
    cached: int  # objects in DVC's cache


def rows_that_name(root: Path, ids: Sequence[str]) -> Counts:
    """Return the number of rows of each table that name each document; the entry of the list itself does not count."""
    from storage.lineage.tracing import exclusions, uses
    from storage.queries.views import connect, datasets, one_line_errors, refuse_damaged
    from storage.records.forgotten import REASON

    with connect(root) as connection, one_line_errors(root):
        refuse_damaged(root, connection)
        views = [dataset.name for dataset in datasets(root) if dataset.shards]
        counted = {}
        for document in ids:
            counts = {use.view: use.rows for view in views if (use := uses(connection, view, document)) is not None}
            if "excluded" in counts:
                rows = exclusions(connection, document)
                counts["excluded"] -= sum(row["reason"] == REASON and not row.get("text") for row in rows)
            counted[document] = counts
        return counted


def output_versions(root: Path) -> dict[str, str | None]:
    """Return the md5 of each output in dvc.lock."""
    from storage.lockfile import read_pipeline

    return {output.path: output.md5 for stage in read_pipeline(root).current() for output in stage.outputs}


def _journal(root: Path, ids: Sequence[str]) -> Path:
    return root / paths.FORGETTING / f"{json_hash(sorted(ids))[:16]}.json"


def state_before(root: Path, ids: Sequence[str]) -> Before:
    """Return the state before the documents were forgotten: as an interrupted call noted it, or else as it is now."""
    try:
        return Before(**orjson.loads(_journal(root, ids).read_bytes()))
    except (OSError, ValueError, TypeError):
        return Before(rows_that_name(root, ids), output_versions(root), _influenced_folders(root, ids))


def _influenced_folders(root: Path, ids: Sequence[str]) -> list[str]:
    """Return the prompts outside the outputs that the documents influenced, now or by an earlier certificate."""
    from storage.lineage.influence import influence
    from storage.queries.views import connect, one_line_errors

    with connect(root) as connection, one_line_errors(root):
        reached = [folder for document in ids for folder in influence(root, connection, document).tuned]
    for certificate in _certificates(root):
        if not set(ids).isdisjoint(certificate.get("documents", ())):
            reached += certificate.get("still_held", {}).get("folders", ())
    outputs = output_versions(root)
    return sorted({name for name in reached if not any(Path(name).is_relative_to(output) for output in outputs)})


def note(root: Path, ids: Sequence[str], before: Before) -> None:
    """Keep the state before, for the certificate of a call that is interrupted and repeated."""
    path = _journal(root, ids)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, orjson.dumps(asdict(before)))


def require_forgotten(root: Path, ids: Sequence[str], pipeline: Pipeline) -> Counts:
    """Return the rows that name the documents, all 0. Raise InputError if one does, or if a stage is not fresh."""
    from flows.dvc_state.freshness import assess

    after = rows_that_name(root, ids)
    left = [f"{document} in {view}" for document, counts in after.items() for view, rows in counts.items() if rows]
    stale = [node.name for node in pipeline.nodes() if assess(pipeline, node.name).state != "fresh"]
    if left or stale:
        wrong = f"still named: {', '.join(left)}" if left else f"not fresh: {', '.join(stale)}"
        raise InputError(f"forget: no certificate, {wrong}: `supmer run`, then repeat this command")
    return after


def copies_of(root: Path, ids: Sequence[str], before: Before, text_field: Callable[[str], str]) -> Copies:
    """Return the earlier versions that hold the documents, with those that earlier calls found and removed.

    Versions that were removed for other documents count too: they may have held these, and nobody can look any more.
    """
    from flows.takedown.git_history import lock_files
    from storage.lineage.document_copies import Copies, find_copies
    from storage.lineage.known_runs import known_runs

    copies = find_copies(root, ids, known_runs(root, lock_files(root).values()), text_field)
    versions, objects = set(copies.versions) | set(before.versions), set(copies.objects) | set(before.objects)
    for certificate in _certificates(root):
        versions |= set(certificate.get("earlier_versions", ()))
        objects |= set(certificate.get("earlier_objects", ()))
    current = set(output_versions(root).values())
    return Copies(frozenset(versions - current), frozenset(objects))


def _certificates(root: Path) -> list[dict[str, Any]]:
    return [orjson.loads(path.read_bytes()) for path in sorted((root / paths.CERTIFICATES).glob("*.json"))]


def still_held(
    root: Path,
    ids: Sequence[str],
    pipeline: Pipeline,
    copies: Copies,
    folders: Sequence[str],
    text_field: Callable[[str], str],
) -> StillHeld:
    """Return what holds the documents: source files, remotes, git commits, folders of prompts, DVC's cache."""
    from flows.takedown.git_history import commits_that_name, commits_with_passage, lock_files
    from flows.takedown.purging import remote_copies
    from storage.lineage.source_places import source_places, text_at
    from storage.lockfile import cache_folder, object_path
    from storage.queries.views import connect, one_line_errors

    with connect(root) as connection, one_line_errors(root):
        places = source_places(root, connection, ids)
    commits = dict.fromkeys(commits_that_name(lock_files(root), copies.versions))
    for place in {place.document_id: place for place in places}.values():
        if text := text_at(root, place, text_field):
            commits |= dict.fromkeys(commits_with_passage(root, text))
    cached = sum(object_path(cache_folder(root), md5).is_file() for md5 in copies.objects)
    remotes = remote_copies(pipeline, copies.objects)
    there = sorted({*(name for name in folders if (root / name).exists()), *_shipped(root, ids)})
    return StillHeld(places, remotes, list(commits), there, cached)


def _shipped(root: Path, ids: Sequence[str]) -> list[str]:
    """Return the shipped prompts that were learned from one of the documents, by the list that each carries."""
    from storage.parquet import open_parquet
    from storage.prompts.shipped_prompt import DOCUMENTS, shipped_folders

    def names(folder: Path) -> bool:
        listed = open_parquet(folder / DOCUMENTS).read(columns=["document_id"]).column("document_id").to_pylist()
        return not set(ids).isdisjoint(listed)

    folders = [folder for folder in shipped_folders(root) if (folder / DOCUMENTS).is_file()]
    return [str(folder.relative_to(root)) for folder in folders if names(folder)]


def write_certificate(
    root: Path, ids: Sequence[str], why: str, before: Before, after: Counts, held: StillHeld, **details: Any
) -> Path:
    """Write the certificate and return its path; the note of the state before is removed."""
    from flows.run.lineage_events import git_commit

    now, current = datetime.now(UTC), output_versions(root)
    copies: Copies = details["copies"]
    purged: Purged | None = details["purged"]
    certificate = {
        "documents": list(ids),
        "why": why,
        "time": now.isoformat(timespec="seconds"),
        "supmer": version("supmer"),
        "git_commit": git_commit(root),
        "rows_before": before.rows,
        "rows_after": after,
        "outputs": _changes(before.outputs, current),
        "verified": _verified(root, after),
        "purged": asdict(purged) if purged else None,
        "still_held": asdict(held),
        "earlier_versions": sorted(copies.versions),
        "earlier_objects": sorted(copies.objects),
    }
    path = root / paths.CERTIFICATES / f"{now:%Y%m%dT%H%M%SZ}-{ids[0][:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, orjson.dumps(certificate, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    remove(_journal(root, ids))
    return path


def _changes(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> dict[str, dict[str, str | None]]:
    return {path: {"before": before.get(path), "after": md5} for path, md5 in after.items() if before.get(path) != md5}


def _verified(root: Path, after: Counts) -> dict[str, Any]:
    """Return what was checked before the certificate: tables, tasks, centroids, the lineage of prompts."""
    from storage.lineage.prompt_folders import learned_prompts, other_prompts

    views = sorted({view for counts in after.values() for view in counts})
    prompts = [*learned_prompts(root), *other_prompts(root)]
    outputs = [root / path for path in output_versions(root)]
    inside = [folder for folder in prompts if any(folder.path.is_relative_to(output) for output in outputs)]
    return {
        "tables": f"no row of {', '.join(views) or 'any table'} names the documents",
        "tasks": _without("tasks", views, "no example holds a sentence of theirs"),
        "centroids": _without("assignments", views, "none is a mean of a sentence of theirs"),
        "prompts": {str(folder.path.relative_to(root)): folder.hash for folder in inside},
        "prompt_lineage": "every stage is fresh: all prompts were made from the tables named here, in these versions",
    }


def _without(view: str, views: Sequence[str], fact: str) -> str:
    return fact if view in views else "not made in this workspace"
