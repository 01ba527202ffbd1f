"""Meta-training on two nodes: two agents of torchrun on loopback, killed and run again, and ranks from outside."""

import socket
import subprocess
import time

import pytest

from support.dying import checkpoint_steps, wait_until_gone
from support.training_room import RUN_SETTINGS, training_workspace
from support.workspaces import BIN

pytestmark = pytest.mark.slow

SETTINGS = (*RUN_SETTINGS, "metatrain.variants=[supmer]", "tune.methods=[pt, supmer]")


@pytest.fixture(scope="module")
def furnished(tmp_path_factory, prefect_api):
    """A workspace whose only stage is metatrain, with what earlier stages would have left."""
    workspace = training_workspace(tmp_path_factory.mktemp("nodes"), prefect_api)
    workspace.run("params", "set", *SETTINGS)
    return workspace


@pytest.fixture
def address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def start_run(workspace, address):
    words = ("run", "metatrain", "--nodes", "2", "--rendezvous", address, "--workers", "1")
    return workspace.start(*words, start_new_session=True)


def await_checkpoint(workspace, *processes):
    """Wait until a training has left a checkpoint after its start."""
    work = workspace.root / ".supmer/shards/metatrain/checkpoints"
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        if any(checkpoint_steps(work.glob("*"))):
            return
        time.sleep(0.05)
    raise AssertionError([process.communicate()[0] for process in processes if process.poll() is not None])


def ended(process, code):
    output, _ = process.communicate(timeout=200)
    assert process.returncode == code, output
    assert "Traceback" not in output
    return output


def alone(workspace, _address):
    return workspace.run("run", "metatrain", "--workers", "1")


def on_two_nodes(workspace, address):
    run, node = start_run(workspace, address), workspace.start("join", address)
    said = ended(run, 0)
    assert "the run is over" in ended(node, 0)
    return said


@pytest.mark.parametrize(("resume", "rank"), [(alone, 4), (on_two_nodes, 5)])
def test_a_node_is_killed_in_mid_training_the_run_stops_with_one_line_and_goes_on(furnished, address, resume, rank):
    furnished.run("params", "set", f"metatrain.regularizer.rank={rank}")  # nothing of it is there yet
    run, node = start_run(furnished, address), furnished.start("join", address)
    await_checkpoint(furnished, run, node)
    node.kill()
    said = ended(run, 2)
    [failed] = [line for line in said.splitlines() if line.startswith("metatrain  failed")]
    assert "a node or rank was lost" in failed
    assert "`supmer run` continues from step " in failed
    assert "training-1: 1 rank here, 2 nodes" in node.communicate()[0]
    wait_until_gone(furnished.root)
    again = resume(furnished, address)
    assert "supmer: continuing from step " in again
    assert "supmer: step 24, held-out loss" in again


HOST = """
import sys, time
from tasks.stage.nodes import Group, hosted
with hosted(Group(2, "127.0.0.1", int(sys.argv[1]))):
    print("hosted", flush=True)
    time.sleep(100)
"""


def test_if_the_run_is_killed_a_node_that_joined_stops_with_one_line(furnished, address):
    command = [BIN / "python", "-c", HOST, address.partition(":")[2]]
    with subprocess.Popen(command, cwd=furnished.root, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "hosted\n"
        node = furnished.start("join", address)
        assert node.stdout.readline() == f"join: joined the run at {address}\n"
        run.kill()
        said = ended(node, 2)
    assert said.startswith(f"supmer: the run at {address} is gone")
    assert said.count("\n") == 1


def started_by_srun(workspace, *words):
    """Start two processes with the ranks that srun gives."""
    processes = []
    for rank in range(2):
        given = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": str(rank)}
        process = subprocess.Popen(
            [BIN / "supmer", *words],
            cwd=workspace.root,
            env=workspace.environment | given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
    return processes


def test_the_ranks_that_slurm_gives_are_used_and_all_end_well_even_if_nothing_is_left_to_do(furnished, address):
    first, second = started_by_srun(furnished, "run", "--force", "metatrain", "--workers", "1", "--rendezvous", address)
    assert "supmer: step 24, held-out loss" in ended(first, 0)
    other = ended(second, 0)
    assert "training-1: 1 rank here, 2 nodes" in other
    assert "the run is over" in other
    first, second = started_by_srun(furnished, "run", "--rendezvous", address)
    assert "metatrain  cached" in ended(first, 0)
    assert "the run is over" in ended(second, 0)


def test_the_ranks_of_an_outer_torchrun_are_used(furnished):
    ranks = ("--standalone", "--nproc-per-node", "2", "--local-addr", "127.0.0.1", "--no-python")
    run = furnished.start(*ranks, BIN / "supmer", "run", "--force", "metatrain", "--workers", "1", program="torchrun")
    said = ended(run, 0)
    assert "supmer: step 24, held-out loss" in said
    assert "training-1: 1 rank here, 2 nodes" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--nodes", "2"), "--nodes 2: give an address of this node too"),
        (("run", "--rendezvous", "a:1"), "--rendezvous: say with --nodes how many nodes"),
        (("run", "--nodes", "2", "--rendezvous", "a:b"), "a:b: not an address"),
        (("join", "http://a/"), "http://a/: not an address"),
    ],
)
def test_what_names_no_group_is_refused_in_one_line(furnished, words, said):
    output = furnished.run(*words, expect=2)
    assert output.startswith(f"supmer: {said}")
    assert output.count("\n") == 1
