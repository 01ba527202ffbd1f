"""The methods of tuning by name: where each starts, and which of them tune nothing (ALGORITHM §7)."""

from typing import Literal

INITIALIZATIONS: dict[str, Literal["normal", "vocabulary"]] = {"pt": "normal", "pt-vocabulary": "vocabulary"}
ZERO_SHOT, FEW_SHOT = "zero-shot", "few-shot"
INFERENCE = (ZERO_SHOT, FEW_SHOT)
PAIR, SINGLE = "ppt-sp", "ppt-ss"  # PPT learns a prompt for each format: a set takes that of its own


def prompts_of(method: str) -> tuple[str, ...]:
    """The prompts of artifacts/prompt that a method may start from; none for a random start and for inference."""
    if method in INITIALIZATIONS or method in INFERENCE:
        return ()
    return (PAIR, SINGLE) if method == "ppt" else (method,)


def chosen_prompt(method: str, fields: int) -> str:
    """The prompt that a method starts from on a set with so many text fields."""
    if method == "ppt":
        return SINGLE if fields == 1 else PAIR
    return method
