"""What a stage took: the seconds and the memory of all its processes."""

import subprocess
import sys
import time

import pytest

from flows.run.measure import measured, tree_memory

MEGABYTE = 1_000_000
HOLDS = f"held = bytearray(b'x') * {200 * MEGABYTE}; print('ready', flush=True); input()"


@pytest.fixture
def child():
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_memory_of_child_processes_counts_once(child):
    with_child = tree_memory()
    child.kill()
    child.wait()
    assert 190 * MEGABYTE < with_child - tree_memory() < 260 * MEGABYTE


def test_the_peak_is_the_highest_while_it_lasted():
    with measured() as usage:
        held = bytearray(b"x") * (300 * MEGABYTE)
        time.sleep(0.6)
        del held
    before = tree_memory()
    assert usage.peak_memory_bytes > before + 200 * MEGABYTE
    assert 0.6 <= usage.seconds < 60
