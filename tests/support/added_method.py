"""The module of a method that a test adds to the table of methods: prompt tuning under another name."""

from tasks.tune import prompt_tuning

settings: dict = {}  # the settings of the last tuning


def tune(job):
    settings.clear()
    settings.update(job.tuning.settings)
    return prompt_tuning.tune(job)


def evaluate(job):
    return prompt_tuning.evaluate(job)
