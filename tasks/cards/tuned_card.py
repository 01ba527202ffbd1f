"""The model card of a tuned prompt, of prefixes or of weights: what it answers, the way it was chosen, its use."""

import re

from tasks.stage.contract import Record

_MARKUP = re.compile(r"([\\`*_\[\]<>|#])")


FITS = "It fits this backbone only."
USE = "    supmer predict --prompt DIR --data new.jsonl"


def tuned_card(downstream: Record, kind: str, what: str, fits: str = FITS, use: str = USE) -> str:
    """Return the card of what was tuned on a few labeled examples.

    Args:
        downstream: the task, and the run that was chosen.
        kind: a name for what was tuned.
        what: what its file holds, up to the word before the name of the backbone.
        fits: a sentence about the model that it is used with.
        use: how it is used.
    """
    labels = ", ".join(
        f"{plain(label)} (“{plain(word)}”)"
        for label, word in zip(downstream["labels"], downstream["words"], strict=True)
    )
    dead = "" if downstream["status"] == "ok" else f" The run was marked {downstream['status']}."
    return f"""# {kind} for {plain(downstream["dataset"])}, tuned on {downstream["shots"]} examples per label

{what} of
{downstream["backbone"]["source"]}. {fits}{dead}

| | |
|---|---|
| method | {downstream["method"]} |
| start | {downstream["start"][:16]} |
| data | {downstream["data"][:16]} |
| seed | {downstream["seed"]} |
| learning rate | {downstream["learning_rate"]:g}, chosen by validation |
| precision | {downstream["precision"]} |
| validation score | {downstream["validation_score"]:.4f} |
| backbone | {downstream["backbone"]["source"]}, files {downstream["backbone"]["hash"][:16]} |

## What it reads and answers

    {" ".join(downstream["template"].split())}

Labels and their words: {labels}. Inputs are cut to {downstream["max_length"]} tokens.

## Use

{use}

A score from few examples is uncertain: look at the deviation over seeds before you rely on it. It carries
whatever the backbone carries, biases included.
"""


def plain(text: str) -> str:
    """Return text from data, in which nothing is markup, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
