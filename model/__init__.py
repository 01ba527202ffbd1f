"""The method of the paper: soft prompts on a frozen backbone, their meta-training and tuning."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.tuning.classifier import PromptedClassifier

__all__ = ["PromptedClassifier"]


def __getattr__(name: str) -> Any:
    """Import the classifier, and torch with it, on first access."""
    if name == "PromptedClassifier":
        from model.tuning.classifier import PromptedClassifier

        return PromptedClassifier
    raise AttributeError(f"module 'model' has no attribute {name!r}")
