"""Stages by themselves on files of a user: what reads a corpus, without Prefect and DVC."""

import hashlib
from pathlib import Path

import orjson
from stages import SAMPLED

from storage import paths
from tasks.params.schema import Params, SampleParams
from tasks.stage.contract import InlineFanOut, SilentReporter, Stage


def sample(folder: Path) -> None:
    """Sample the corpus whose files lie in a folder, in a workspace below it."""
    from tasks.sample import stage as sample_stage

    files = []
    for path in sorted((folder / "corpus").iterdir()):
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        files.append({"name": path.name, "path": f"corpus/{path.name}", "bytes": len(content), "sha256": sha256})
    source = {"name": "own", "spec": "path:corpus", "licence": "", "folder": "corpus", "files": files}
    (folder / paths.CORPUS).mkdir(parents=True)
    (folder / paths.CORPUS / "source.json").write_bytes(orjson.dumps({"role": "corpus", "sources": [source]}))
    stage = Stage(
        name="sample",
        root=folder,
        params=Params.model_construct(seed=1, sample=SampleParams(min_words=10)),
        inputs=(paths.CORPUS, paths.FORGOTTEN),
        outputs=SAMPLED,
        fingerprint="0" * 64,
        code="0" * 64,
        fan_out=InlineFanOut(),
        reporter=SilentReporter(),
    )
    stage.start()
    sample_stage.run(stage)
