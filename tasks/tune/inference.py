"""Inference without tuning: the template alone, or demonstrations before it."""

from tasks.tune.evaluation import Evaluated, with_demonstrations, with_nothing
from tasks.tune.method_module import EvaluationJob


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples, after demonstrations if the job has a set to draw them from."""
    if job.source is None:
        return with_nothing(job.passes, job.words, job.examples)
    assert job.seed is not None  # the seed of the draw
    return with_demonstrations(job.passes, job.words, job.source, (job.shots, job.seed), job.room, job.examples)
