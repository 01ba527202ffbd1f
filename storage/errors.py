"""The two kinds of failure that are not bugs: invalid input and transient errors."""


class InputError(Exception):
    """Invalid input from the user; the message says in one line what is wrong, where, and what to do (exit code 2)."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class TransientError(Exception):
    """A failure of something outside (a network, a busy registry) that may pass, so that a retry makes sense."""
