"""Self-supervised meta-prompt learning: tune, use and share soft prompts for T5 from Python.

    from supmer import PromptedClassifier, tune

`import supmer` is quick: torch is imported with the first name that needs it. docs/api.md shows how to use each name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.text.templates import Template, parse_template
    from model.tuning.classifier import Prediction, PromptedClassifier
    from storage.errors import InputError
    from storage.prompts.prompt_artifact import PromptArtifact
    from supmer.prompts import export_peft, import_peft, load_prompt, push_to_hub, save_prompt
    from supmer.tuning import SeedResult, TuneResult, tune

__version__ = "0.2.0"

__all__ = [
    "InputError",
    "Prediction",
    "PromptArtifact",
    "PromptedClassifier",
    "SeedResult",
    "Template",
    "TuneResult",
    "__version__",
    "export_peft",
    "import_peft",
    "load_prompt",
    "parse_template",
    "push_to_hub",
    "save_prompt",
    "tune",
]

_MODULES = {
    "InputError": "storage.errors",
    "Prediction": "model.tuning.classifier",
    "PromptArtifact": "storage.prompts.prompt_artifact",
    "PromptedClassifier": "model.tuning.classifier",
    "SeedResult": "supmer.tuning",
    "Template": "model.text.templates",
    "TuneResult": "supmer.tuning",
    "export_peft": "supmer.prompts",
    "import_peft": "supmer.prompts",
    "load_prompt": "supmer.prompts",
    "parse_template": "model.text.templates",
    "push_to_hub": "supmer.prompts",
    "save_prompt": "supmer.prompts",
    "tune": "supmer.tuning",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'supmer' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
