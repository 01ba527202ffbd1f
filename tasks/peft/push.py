"""Upload of an adapter's folder to the Hugging Face hub."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import InputError, TransientError, first_line
from storage.prompts.peft_adapter import CONFIG

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LOG_IN = "run `hf auth login`, or set HF_TOKEN to a token that may write"


def refuse_repository(repository: str) -> None:
    """Raise InputError if `repository` is not the name of a repository on the hub, `owner/name`."""
    if not _NAME.fullmatch(repository):
        raise InputError(f"{repository}: not the name of a repository: write OWNER/NAME")


def push_to_hub(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload an adapter's folder to a model repository, which is made if needed, and return the address of the commit.

    Raise InputError if the folder is no adapter or the hub refuses, and TransientError if the hub does not answer.
    """
    from huggingface_hub import HfApi

    if not (folder / CONFIG).is_file():
        raise InputError(f"{folder}: no {CONFIG} in it: give the folder of a PEFT adapter")
    refuse_repository(repository)
    api = HfApi()
    with _explained(repository):
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Add a soft prompt by supmer")
    return str(commit.commit_url)


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Convert the hub's exceptions to errors of one line that say what to do."""
    import httpx2
    from huggingface_hub import constants, errors

    try:
        yield
    except errors.HFValidationError as error:
        raise InputError(f"{repository}: not the name of a repository ({first_line(error)})") from error
    except errors.OfflineModeIsEnabled as error:
        raise InputError(f"{repository}: HF_HUB_OFFLINE is set: unset it to push") from error
    except errors.LocalTokenNotFoundError as error:
        raise InputError(f"{repository}: the hub needs to know who you are: {_LOG_IN}") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in {401, 403}:
            raise InputError(f"{repository}: the hub refuses ({status}): {_LOG_IN}") from error
        kind = TransientError if status >= 500 or status == 429 else InputError
        raise kind(f"{repository}: the hub answered {status} ({first_line(error)}): try again later") from error
    except httpx2.HTTPError as error:
        where = constants.ENDPOINT
        raise TransientError(
            f"{repository}: {where} cannot be reached ({first_line(error)}): check the network"
        ) from error
