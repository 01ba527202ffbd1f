"""The two kinds of failure that are not bugs: bad input, and trouble that may pass."""


class InputError(Exception):
    """Something the user gave is wrong: one line that says what, where and what to do (exit code 2)."""


def first_line(error: BaseException) -> str:
    """What an error says, as far as one line goes."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class TransientError(Exception):
    """Something outside failed in a way that may pass (a network, a busy registry): worth a retry."""
