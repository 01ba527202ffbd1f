"""The two kinds of failure that are not bugs: invalid input and transient errors."""

import pickle
from collections.abc import Iterable
from difflib import get_close_matches

# What libraries raise while they load the files of a model, besides SafetensorError and StrictDataclassError.
UNLOADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
)


class InputError(Exception):
    """Invalid input from the user; the message says in one line what is wrong, where, and what to do (exit code 2)."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'Text'?` for the known name nearest to `name`, or "" if none is near.

    A name that differs in case or in the spaces around it alone comes first.
    """
    names = list(known)
    alike = [other for other in names if other.strip().lower() == name.strip().lower()]
    near = alike or get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def load_failure(error: BaseException) -> str:
    """Return in one line why the files of a model could not be loaded."""
    if isinstance(error, pickle.UnpicklingError):  # torch's own message advises to load the file without protection
        return "its weights are not a file of plain tensors: anything else is refused, as it could run code"
    return "a file of weights ends too early" if isinstance(error, EOFError) else first_line(error)


class TransientError(Exception):
    """A failure of something outside (a network, a busy registry) that may pass, so that a retry makes sense."""
