"""The provenance of a learned prompt, as it travels with the prompt: sources, parameters, documents, scores."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage import paths
from storage.errors import InputError
from storage.lineage.ancestry import Ancestry, ArtifactNode, StageNode
from storage.lockfile import read_pipeline
from storage.queries.report_queries import RESULTS, Row, ask
from storage.queries.views import connect, one_line_errors, refuse_damaged

_DOCUMENTS = "SELECT document_id, source, file, row, split FROM documents ORDER BY source, file, row"
_LEARNING = ("seed", "precision", "acquire", "sample", "embed", "cluster", "materialize", "metatrain")


def provenance(root: Path) -> tuple[dict[str, Any], pa.Table]:
    """Return the record of the learned prompts of a workspace, and the documents that they were learned from.

    Raise InputError if the workspace has not made them, or now holds other versions of what they were made from.
    """
    tree = Ancestry(read_pipeline(root)).tree(paths.PROMPTS)
    _refuse_earlier(tree)
    assert tree.stage is not None  # dvc.yaml says which makes it
    stages = {stage.name: stage for stage in _stages(tree.stage)}
    parameters = {key: value for stage in stages.values() for key, value in stage.parameters.items()}
    with connect(root, threads=1) as connection, one_line_errors(root):
        refuse_damaged(root, connection)
        documents: pa.Table = connection.sql(_DOCUMENTS).to_arrow_table()
        scores = [row for row in ask(root, connection, RESULTS) if row["mean"] is not None]
    record = {
        "documents": documents.num_rows,
        "sources": [_source(role, source) for role, source in _sources(tree)],
        "parameters": {key: parameters[key] for key in sorted(parameters) if key.partition(".")[0] in _LEARNING},
        "learned": {"time": tree.stage.time, "seconds": tree.stage.seconds, "git_commit": tree.stage.git_commit},
        "scores": [_score(row) for row in scores],
    }
    return record, documents


def _refuse_earlier(tree: ArtifactNode) -> None:
    for node in _nodes(tree):
        if node.note is not None:
            raise InputError(f"{paths.PROMPTS}: was made from {node.path}, and {node.note}: `supmer run` first")


def _nodes(node: ArtifactNode) -> Iterator[ArtifactNode]:
    yield node
    for item in node.stage.inputs if node.stage else ():
        yield from _nodes(item)


def _stages(stage: StageNode) -> Iterator[StageNode]:
    yield stage
    for item in stage.inputs:
        if item.stage is not None:
            yield from _stages(item.stage)


def _sources(tree: ArtifactNode) -> Iterator[tuple[str, Any]]:
    """Yield each source once, with its role."""
    seen = {node.path: node for node in _nodes(tree) if node.sources}
    for path, node in sorted(seen.items()):
        for source in node.sources:
            if path != paths.DATASETS:
                yield Path(path).name, source


def _source(role: str, source: Any) -> dict[str, Any]:
    files = [{"name": file.name, "bytes": file.bytes, "sha256": file.sha256} for file in source.files]
    return {"role": role, "name": source.name, "spec": source.spec, "licence": source.licence, "files": files}


def _score(row: Row) -> dict[str, Any]:
    names = ("dataset", "tested_on", "method", "shots", "seeds", "examples", "mean", "deviation")
    return {name: round(row[name], 2) if isinstance(row[name], float) else row[name] for name in names}
