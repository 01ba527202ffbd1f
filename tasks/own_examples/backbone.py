"""The backbone and the sentence embedder for tuning on a user's own examples, and the form of its templates."""

from pathlib import Path

from storage import paths
from storage.errors import InputError
from storage.hashing import file_hash
from storage.prompts.local_backbone import MadeFor, backbone_folder
from storage.sources.source import AcquiredSource, SourceFile, read_manifest
from storage.vectors.sentence_vectors import model_hash
from tasks.tune.initialization import Start
from tasks.tune.method_module import Embedder


def folder_source(folder: Path) -> AcquiredSource:
    """Return the folder of a model as a source."""
    if not folder.is_dir():
        raise InputError(f"{folder}: not there: give the folder of a model")
    files = tuple(
        SourceFile(path.name, str(path), path.stat().st_size, file_hash(path))
        for path in sorted(folder.iterdir())
        if path.is_file()
    )
    return AcquiredSource("backbone", f"path:{folder}", "unknown", str(folder), files)


def backbone_about(
    source: AcquiredSource, start: Start | None, prompt: Path | None, given: Path | None
) -> dict[str, str]:
    """Return the source and the hash of a backbone, as the tuned prompt will name it.

    A folder that a user names may hold more than the model; the hash is then the one in the description of the
    initial prompt.

    Args:
        source: the backbone.
        start: the start of a prompt, if one is tuned.
        prompt: the folder of the initial prompt, if there is one.
        given: the model's folder, if the user named it.
    """
    artifact = start.artifact if start else None
    wanted = MadeFor.of(artifact.about).hash if artifact else ""
    if wanted and artifact and prompt is not None and given is not None:
        backbone_folder(prompt, artifact.about, given)  # raises InputError if it is another model
        found = wanted
    else:
        found = model_hash(source)
    return {"source": source.spec.partition("#")[0], "hash": found}


def workspace_embedder(root: Path) -> Embedder:
    """Return the sentence embedder of a workspace; raise InputError if it has none."""
    source = read_manifest(root / paths.EMBEDDER)[0]
    return Embedder(root / source.folder, model_hash(source))


def template_form(start: Start | None, otherwise: str) -> str:
    """Return the form of the templates that the initial prompt was learned with, or `otherwise`."""
    about = start.artifact.about if start and start.artifact else {}
    training, downstream = (
        part if isinstance(part := about.get(key), dict) else {} for key in ("training", "downstream")
    )
    return str(training.get("template") or downstream.get("form") or otherwise)
