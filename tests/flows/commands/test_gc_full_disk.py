"""`supmer gc` on a full disk, which is when it is needed."""

import shutil
import subprocess
from contextlib import suppress

import pytest

OBJECT = ".dvc/cache/files/md5/ab/cdef0123456789abcdef0123456789"  # nothing refers to it
SCRATCH = ".supmer/tmp/sample-0123456789abcdef/x"

# Of a library that DVC reads its paths with.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


@pytest.fixture
def full(audited, tmp_path, monkeypatch):
    """A workspace on a disk of its own, and a function that fills the disk to the last byte."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", place], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    root = place / "workspace"
    shutil.copytree(audited, root, symlinks=True)
    monkeypatch.chdir(root)

    def fill():
        with suppress(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    yield root, fill
    monkeypatch.chdir(tmp_path)
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("useless", [(OBJECT,), (SCRATCH,), (OBJECT, SCRATCH)])
def test_it_frees_what_nothing_needs(full, command_line, useless):
    root, fill = full
    for name in useless:
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(bytes(100_000))
    fill()
    assert shutil.disk_usage(root).free == 0
    code, out, message = command_line("gc")
    assert (code, message) == (0, "")
    assert out == f"freed {0.1 * len(useless):.1f} MB\n"
    assert not [name for name in useless if (root / name).exists()]
