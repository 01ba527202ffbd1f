"""Split a lock file with hashes into requirements.lock and requirements-cuda.lock: `make lock` calls it.

torch exists in two kinds of builds. The registry's build for Linux depends on NVIDIA's libraries, a CPU build does not.
The libraries therefore have a file of their own; torch keeps the hashes of both kinds (docs/decisions/lock-files.md).
"""

import hashlib
import re
import sys
from pathlib import Path

MAIN, CUDA = Path("requirements.lock"), Path("requirements-cuda.lock")
CUDA_NAMES = re.compile(r"(nvidia|cuda)-|triton==")
REQUIREMENT = re.compile(r"^[a-z0-9].*?(?:\n    .*)*$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
HEADERS = {
    MAIN: "# Made by 'make lock' from pyproject.toml: every package but those that torch needs on NVIDIA's GPUs.\n",
    CUDA: "# Made by 'make lock': what the registry's build of torch needs on Linux besides requirements.lock.\n",
}


def main(resolved: str, *builds: str) -> None:
    """Write both files; `builds` are wheels of torch whose hashes the registry does not list."""
    requirements = REQUIREMENT.findall(Path(resolved).read_text("utf-8"))
    extra = {f"--hash=sha256:{hashlib.sha256(Path(build).read_bytes()).hexdigest()}" for build in builds}
    main_lock = [with_local_builds(text, extra) for text in requirements if not CUDA_NAMES.match(text)]
    cuda_lock = [text for text in requirements if CUDA_NAMES.match(text)]
    for path, lines in ((MAIN, main_lock), (CUDA, cuda_lock)):
        path.write_text(HEADERS[path] + "\n".join(lines) + "\n", "utf-8")


def with_local_builds(requirement: str, extra: set[str]) -> str:
    """Return torch's requirement with the hashes of local builds added, and any other requirement as it is."""
    pin, *_ = requirement.split(" ", 1)
    if not pin.startswith("torch=="):
        return requirement
    before = MAIN.read_text("utf-8") if MAIN.exists() else ""
    kept = [set(HASH.findall(text)) for text in REQUIREMENT.findall(before) if text.split(" ", 1)[0] == pin]
    hashes = set(HASH.findall(requirement)).union(extra, *kept)
    return " \\\n    ".join([pin, *sorted(hashes)])


if __name__ == "__main__":
    main(*sys.argv[1:])
