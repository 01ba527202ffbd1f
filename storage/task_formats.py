"""The formats and kinds of anchor tasks (ALGORITHM §2), and the two splits."""

from typing import NamedTuple

FORMATS = ("sp", "mc", "ss")
SPLITS = ("train", "validation")
LABELED = "labeled"  # the format of tasks made from datasets
CHOICES = 4


class Kind(NamedTuple):
    """A kind of anchor task: its format, its number of sentences in an example, and its number of labels."""

    format: str
    parts: int
    labels: int


ANCHOR_KINDS = {
    "sp-next": Kind("sp", 2, 3),
    "sp-cluster": Kind("sp", 2, 2),
    "mc-next": Kind("mc", 1 + CHOICES, CHOICES),
    "mc-cluster": Kind("mc", 1 + CHOICES, CHOICES),
    "ss": Kind("ss", 1, CHOICES),
}
KINDS = {name: tuple(kind for kind, form in ANCHOR_KINDS.items() if form.format == name) for name in FORMATS}
LABELS = {kind: form.labels for kind, form in ANCHOR_KINDS.items()}
