"""The method of a tuning on a user's own examples: a row of the table, or prompt tuning from a prompt of the user's."""

from dataclasses import dataclass
from pathlib import Path

from storage.errors import InputError
from storage.prompts.prompt_artifact import read_prompt
from tasks.methods import METHODS, PROMPT_TUNING, refuse_missing_package
from tasks.own_examples.options import learned_folder, refuse_shipped
from tasks.tune.initialization import Start, read_start


@dataclass(frozen=True)
class OwnMethod:
    """A method with its start.

    Attributes:
        name: the name in results and in the description of what is tuned.
        module: the module that tunes and evaluates.
        start: the start of a prompt; None for a method that trains something else.
        start_name: the name of the start in messages.
        prompt: the folder of the initial prompt, if there is one.
        row: the name of the row of the table, "" for a prompt of the user's.
    """

    name: str
    module: str
    start: Start | None
    start_name: str
    prompt: Path | None = None
    row: str = ""

    @property
    def tokens(self) -> int:
        """The tokens of the prompt; 0 for a method without a prompt."""
        return self.start.tokens if self.start else 0


def prompt_method(prompt: Path) -> OwnMethod:
    """Return prompt tuning from the prompt in a folder."""
    artifact = read_prompt(prompt)
    return OwnMethod(prompt.name, PROMPT_TUNING, Start(len(artifact.prompt), artifact=artifact), str(prompt), prompt)


def table_method(name: str, tokens: int, prompts: Path, fields: int) -> OwnMethod:
    """Return a method of the table; raise InputError if it is not built, or its learned prompt is not there.

    Args:
        name: the name of a row.
        tokens: the tokens of a prompt that starts at random.
        prompts: the folder of the prompts that `metatrain` learned.
        fields: the number of texts of an example.
    """
    row = METHODS.get(name)
    if row is None or not row.is_built:
        there = ", ".join(name for name, row in METHODS.items() if row.is_built)
        raise InputError(f"method {name}: not built: there are {there}")
    refuse_missing_package(name)
    refuse_shipped(name)
    if row.start == "learned":
        folder = learned_folder(name, prompts, fields)
        artifact = read_prompt(folder)
        return OwnMethod(name, row.module, Start(len(artifact.prompt), artifact=artifact), str(folder), folder, name)
    start = read_start(name, tokens, prompts, fields) if row.trains == "prompt" else None
    return OwnMethod(name, row.module, start, name, row=name)
