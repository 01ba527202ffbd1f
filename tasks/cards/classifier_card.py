"""The card of a linear classifier, which prompts are compared with."""

from tasks.cards.tuned_card import plain
from tasks.methods import METHODS
from tasks.stage.contract import Record


def classifier_card(downstream: Record) -> str:
    """Return the card of a classifier trained on a few labeled examples."""
    return f"""# {METHODS[downstream["method"]].title} for {plain(downstream["dataset"])}, \
trained on {downstream["shots"]} examples per label

A linear classifier by scikit-learn on the same few examples as the prompts beside it. It is there to compare with: it
does not use the backbone, and `supmer predict` does not take it.

| | |
|---|---|
| method | {downstream["method"]} |
| data | {downstream["data"][:16]} |
| seed | {downstream["seed"]} |
| C | {downstream["strength"]:g}, chosen by validation |
| validation score | {downstream["validation_score"]:.4f} |
| labels | {", ".join(map(plain, downstream["labels"]))} |
"""
