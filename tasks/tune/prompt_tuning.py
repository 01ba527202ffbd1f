"""Prompt tuning from any start: the methods of the table that train a prompt before a frozen backbone."""

from storage.prompts.prompt_artifact import read_prompt
from tasks.stage.contract import Record
from tasks.tune.evaluation import Evaluated, with_prompt
from tasks.tune.initialization import read_start, refuse_misfit
from tasks.tune.method_module import EvaluationJob, TuningJob
from tasks.tune.seed_files import write_seed
from tasks.tune.seed_tuning import SeedTuned, Setup, tune_seeds


def tune(job: TuningJob) -> dict[str, Record]:
    """Tune seeds of one dataset together, and write the prompt and the curves of each; return a record for each."""
    tuning = job.tuning
    start = read_start(tuning.method, tuning.prompt_tokens, job.prompts, len(job.dataset.form.fields))
    if start.artifact is not None:
        refuse_misfit(start.artifact, f"tune.methods: {tuning.method}", job.passes.backbone.width, job.backbone)
    setup = Setup(tuning, job.dataset, start, job.passes, job.words)
    tuned = tune_seeds(setup, job.seeds, job.work, job.tell, job.say)
    for seed in tuned:
        job.say(_summary(setup, seed))
    return {str(seed.seed): write_seed(job.folder / str(seed.seed), setup, seed, job.backbone) for seed in tuned}


def _summary(setup: Setup, tuned: SeedTuned) -> str:
    chosen, rate = tuned.results[tuned.chosen], setup.tuning.learning_rates[tuned.chosen]
    dead = "" if chosen.status == "ok" else f" ({chosen.status})"
    return (
        f"{setup.name}: {setup.tuning.shots} shots, seed {tuned.seed}: validation {chosen.best.validation_score:.3f} "
        f"after step {chosen.best.step}, learning rate {rate:g}{dead}"
    )


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples after the tuned prompt."""
    assert job.tuned is not None  # `tune` wrote it
    return with_prompt(job.passes, job.words, read_prompt(job.tuned).prompt, job.examples)
