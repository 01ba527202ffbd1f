"""The influence of a document: what was computed from its sentences, and what was computed from that in turn.

Direct are the rows that name the document or one of its sentences, the centroids that are means of its sentences, and
the prompts whose tasks hold them. Indirect is what depends on these: other prompts of the same corpus, what was tuned
from an influenced prompt, and its measures, scores and predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from storage import paths
from storage.lineage.prompt_folders import PromptFolder, learned_prompts, other_prompts, read_folder
from storage.lineage.tracing import ASSIGNMENTS, TASKS, document_record, names_document
from storage.prompts.shipped_prompt import shipped_from
from storage.queries.views import identifier, view_columns
from storage.task_formats import FORMATS

_SHOWN = 10  # clusters that are listed for a format


@dataclass(frozen=True)
class CentroidUse:
    """The centroids of one format that are means over sentences of a document, among others."""

    format: str
    sentences: int
    clusters: tuple[int, ...]

    def __str__(self) -> str:
        more = ", …" if len(self.clusters) > _SHOWN else ""
        listed = ", ".join(map(str, self.clusters[:_SHOWN])) + more
        sentences = "1 sentence is" if self.sentences == 1 else f"{self.sentences:,} sentences are"
        return f"{sentences} part of {len(self.clusters):,} of {self.format}'s centroids: {listed}"


@dataclass(frozen=True)
class PromptUse:
    """The examples with sentences of a document in the tasks of a prompt: to train it, and to choose its best step."""

    path: str
    formats: tuple[str, ...]
    training: int
    held_out: int

    @property
    def is_direct(self) -> bool:
        """True if the prompt's own tasks hold a sentence of the document."""
        return self.training > 0 or self.held_out > 0


@dataclass(frozen=True)
class Influence:
    """The artifacts that a document influenced, apart from the rows that name it.

    Attributes:
        centroids: by format.
        prompts: the meta-trained prompts, direct and indirect ones.
        tuned: folders of what was tuned or exported from an influenced prompt.
        rows: the number of rows of measures, scores and predictions of influenced prompts, by view.
        report: True if the report describes influenced results.
    """

    centroids: tuple[CentroidUse, ...] = ()
    prompts: tuple[PromptUse, ...] = ()
    tuned: tuple[str, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    report: bool = False

    @property
    def direct_prompts(self) -> list[PromptUse]:
        """The prompts whose tasks hold a sentence of the document."""
        return [prompt for prompt in self.prompts if prompt.is_direct]

    @property
    def indirect_prompts(self) -> list[PromptUse]:
        """The prompts that only depend on clusters and draws that the document took part in."""
        return [prompt for prompt in self.prompts if not prompt.is_direct]


def influence(root: Path, connection: duckdb.DuckDBPyConnection, document: str) -> Influence:
    """Return what a document reached; nothing if it is not kept, and no shipped prompt was learned from it."""
    record = document_record(connection, document)
    shipped = [folder for name in shipped_from(root, document) if (folder := read_folder(root / name))]
    if record is None and not shipped:
        return Influence()
    kept = record is not None
    centroids = _centroids(connection, document) if record is not None and record["split"] == "train" else ()
    learned = [prompt for prompt in learned_prompts(root) if kept and set(prompt.formats) & set(FORMATS)]
    prompts = tuple(_prompt_use(root, connection, document, prompt) for prompt in learned)
    hashes = sorted({prompt.hash for prompt in (*learned, *shipped) if prompt.hash})
    named = {folder.path for folder in shipped}  # `uses` lists them by themselves
    tuned = [folder for folder in _made_from(other_prompts(root), hashes) if folder.path not in named]
    rows = _rows(connection, hashes, [prompt.path.name for prompt in learned])
    written = (root / paths.REPORT_PAGE).is_file() and (kept or bool(rows))
    return Influence(centroids, prompts, tuple(_shown(root, folder.path) for folder in tuned), rows, written)


def _made_from(folders: Sequence[PromptFolder], hashes: Sequence[str]) -> list[PromptFolder]:
    """Return the folders that were tuned or exported from prompts with these hashes, or from one of the folders."""
    reached, made = {*hashes}, 0
    while len(reached) > made:  # a prompt may be tuned from one that was tuned
        made = len(reached)
        reached |= {folder.hash for folder in folders if folder.hash and folder.start in reached}
    return [folder for folder in folders if folder.start in reached or folder.hash in reached]


def _shown(root: Path, path: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _centroids(connection: duckdb.DuckDBPyConnection, document: str) -> tuple[CentroidUse, ...]:
    """Return the centroids that are means of a training document's sentences (a dropped cluster has none)."""
    columns = view_columns(connection, ASSIGNMENTS)
    uses = []
    for name in FORMATS:
        if name not in columns:
            continue
        rows = connection.execute(
            f"SELECT {identifier(name)}, count(*) FROM {ASSIGNMENTS} "
            f"WHERE document_id = ? AND {identifier(name)} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1",
            [document],
        ).fetchall()
        if rows:
            uses.append(CentroidUse(name, sum(count for _, count in rows), tuple(int(cluster) for cluster, _ in rows)))
    return tuple(uses)


def _prompt_use(root: Path, connection: duckdb.DuckDBPyConnection, document: str, prompt: PromptFolder) -> PromptUse:
    counts: dict[str, int] = {}
    formats: set[str] = set()
    if "sentence_ids" in view_columns(connection, TASKS):
        kinds = prompt.about["training"].get("kinds") or []
        rows = connection.execute(
            f"SELECT format, split, count(*) FROM {TASKS} WHERE list_contains($formats, format) "
            f"AND (len($kinds) = 0 OR list_contains($kinds, kind)) AND {names_document('sentence_ids', 'VARCHAR[]')} "
            "GROUP BY ALL",
            {"formats": list(prompt.formats), "kinds": list(kinds), "first": f"{document}:"},
        ).fetchall()
        for name, split, count in rows:
            formats.add(name)
            counts[split] = counts.get(split, 0) + int(count)
    return PromptUse(
        _shown(root, prompt.path), tuple(sorted(formats)), counts.get("train", 0), counts.get("validation", 0)
    )


def _rows(connection: duckdb.DuckDBPyConnection, hashes: Sequence[str], variants: Sequence[str]) -> dict[str, int]:
    """Return the number of rows that were measured with prompts of these hashes or variants, by view."""
    tuned: list[str] = []
    if "tuned_hash" in view_columns(connection, "scores"):
        rows = connection.execute(
            "SELECT DISTINCT tuned_hash FROM scores WHERE list_contains(?, prompt_hash)", [list(hashes)]
        ).fetchall()
        tuned = [str(row[0]) for row in rows]
    counted: dict[str, int] = {}
    for view, column, values in (
        ("steps", "variant", variants),
        ("held_out", "variant", variants),
        ("kinds", "variant", variants),
        ("curves", "prompt_hash", hashes),
        ("scores", "prompt_hash", hashes),
        ("predictions", "tuned_hash", tuned),
    ):
        if column in view_columns(connection, view):
            test = f"SELECT count(*) FROM {identifier(view)} WHERE list_contains(?, {identifier(column)})"
            row: Any = connection.execute(test, [list(values)]).fetchone()
            if row and row[0]:
                counted[view] = int(row[0])
    return counted
