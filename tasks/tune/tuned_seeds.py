"""Tuning of all seeds of a job from one start, and the files of their results."""

from tasks.stage.contract import Record
from tasks.tune.initialization import TuningStart
from tasks.tune.method_module import TuningJob
from tasks.tune.seed_files import write_seed
from tasks.tune.seed_tuning import Setup, tune_seeds


def tuned_seeds(job: TuningJob, start: TuningStart) -> dict[str, Record]:
    """Tune the seeds together, and write what was tuned and the curves of each; return a record for each."""
    setup = Setup(job.tuning, job.dataset, start, start.passes(job.passes), job.words)
    tuned = tune_seeds(setup, job.seeds, job.work, job.progress, job.say)
    return {str(seed.seed): write_seed(job.folder / str(seed.seed), setup, seed, job.backbone) for seed in tuned}
