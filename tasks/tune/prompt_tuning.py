"""Prompt tuning from any start: the methods of the table that train a prompt before a frozen backbone."""

from storage.prompts.prompt_artifact import read_prompt
from tasks.stage.contract import Record
from tasks.tune.evaluation import Evaluated, with_prompt
from tasks.tune.initialization import Start, read_start, refuse_misfit
from tasks.tune.method_module import EvaluationJob, TuningJob
from tasks.tune.tuned_seeds import tuned_seeds


def tune(job: TuningJob) -> dict[str, Record]:
    """Tune seeds of one dataset together, from the user's start or the method's own."""
    tuning = job.tuning
    start = job.start or _own_start(job)
    if start.artifact is not None:
        where = job.start_name or f"tune.methods: {tuning.method}"
        refuse_misfit(start.artifact, where, job.passes.backbone.width, job.backbone)
    return tuned_seeds(job, start)


def _own_start(job: TuningJob) -> Start:
    if job.shipped is not None:
        artifact = read_prompt(job.shipped)
        return Start(len(artifact.prompt), artifact=artifact)
    return read_start(job.tuning.method, job.tuning.prompt_tokens, job.prompts, len(job.dataset.form.fields))


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples after the tuned prompt."""
    assert job.tuned is not None  # `tune` wrote it
    return with_prompt(job.passes, job.words, read_prompt(job.tuned).prompt, job.examples)
