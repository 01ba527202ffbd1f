"""Stages of the pipeline as benchmarks run them: silently, in a folder that holds what they read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage import paths
from tasks.params.schema import Params
from tasks.stage.contract import FanOut, SilentReporter, Stage

SAMPLED = [
    paths.DOCUMENTS,
    paths.EXCLUDED,
    paths.SENTENCES,
    paths.SAMPLE_METRICS,
    paths.EXCLUDED_PLOT,
    paths.SENTENCE_WORDS_PLOT,
]  # the outputs of stage sample


def silent_stage(
    name: str, root: Path, sections: Mapping[str, Any], inputs: Sequence[str], outputs: Sequence[str], fan_out: FanOut
) -> Stage:
    """Return a started stage with these parameters."""
    stage = Stage(
        name=name,
        root=root,
        params=Params.model_validate(sections),
        inputs=inputs,
        outputs=outputs,
        fingerprint="0" * 64,
        code="0" * 64,
        fan_out=fan_out,
        reporter=SilentReporter(),
    )
    stage.start()
    return stage
