"""The paper: the prompted backbone and what is learned on it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.tuning.classifier import PromptedClassifier

__all__ = ["PromptedClassifier"]


def __getattr__(name: str) -> Any:
    """Import the classifier, and torch with it, only when it is asked for."""
    if name == "PromptedClassifier":
        from model.tuning.classifier import PromptedClassifier

        return PromptedClassifier
    raise AttributeError(f"module 'model' has no attribute {name!r}")
