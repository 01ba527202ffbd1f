"""Split a lock file with hashes into three: `make lock` calls it.

requirements.lock             everything but torch and what only torch needs
requirements-torch-cpu.lock   a CPU build of torch, which needs nothing else
requirements-torch-cuda.lock  the registry's build of torch, with NVIDIA's libraries on Linux

One file cannot hold both builds: docs/decisions/lock-files.md says why.
"""

import hashlib
import re
import sys
from pathlib import Path

MAIN, CPU, CUDA = (Path(f"requirements{part}.lock") for part in ("", "-torch-cpu", "-torch-cuda"))
LIBRARIES = re.compile(r"(nvidia|cuda)-|triton==")
TORCH = re.compile(r"torch==(\S+)")
REQUIREMENT = re.compile(r"^[a-z0-9].*?(?:\n    .*)*$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
HEADERS = {
    MAIN: "# Made by 'make lock' from pyproject.toml: everything but torch.\n",
    CPU: "# Made by 'make lock': a CPU build of torch, where pip finds one of these files.\n",
    CUDA: "# Made by 'make lock': the registry's build of torch, and what it needs on Linux.\n",
}


def main(resolved: str, *builds: str) -> None:
    """Write the files; `builds` are wheels of CPU builds of torch, whose hashes the registry does not list."""
    files: dict[Path, list[str]] = {MAIN: [], CPU: [], CUDA: []}
    for requirement in REQUIREMENT.findall(Path(resolved).read_text("utf-8")):
        if LIBRARIES.match(requirement):
            files[CUDA].append(requirement.replace(" \\\n", ' ; sys_platform == "linux" \\\n', 1))
        elif torch := TORCH.match(requirement):
            files[CUDA].append(requirement)
            files[CPU].append(cpu_build(f"{torch[1]}+cpu", [Path(build) for build in builds]))
        else:
            files[MAIN].append(requirement)
    for path, requirements in files.items():
        path.write_text(HEADERS[path] + "\n".join(requirements) + "\n", "utf-8")


def cpu_build(version: str, builds: list[Path]) -> str:
    """Return the requirement of a CPU build: the hashes of `builds`, and those that the file has of this version."""
    pin = f"torch=={version}"
    before = CPU.read_text("utf-8") if CPU.exists() else ""
    hashes = {
        found for text in REQUIREMENT.findall(before) if text.startswith(f"{pin} ") for found in HASH.findall(text)
    }
    for build in builds:
        if not build.name.startswith(f"torch-{version}-"):
            sys.exit(f"{build}: not a build of torch {version}")
        hashes.add(f"--hash=sha256:{hashlib.sha256(build.read_bytes()).hexdigest()}")
    if not hashes:
        sys.exit(f"no hash of a CPU build of torch {version} is known: make lock TORCH_BUILDS=/path/to/its/wheels")
    return " \\\n    ".join([pin, *sorted(hashes)])


if __name__ == "__main__":
    main(*sys.argv[1:])
