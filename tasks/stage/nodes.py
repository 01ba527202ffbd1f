"""Several nodes that train together: a run offers its trainings at an address, and other nodes join them.

The address is that of torch's TCPStore, which the run hosts. Each training is a rendezvous of torchrun (c10d) at that
store: torchrun decides on ranks and notices who is gone. Where the environment gives the ranks (Slurm's srun, an outer
torchrun), they are used as they are. The nodes share the workspace: data, checkpoints and results are files.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from storage.errors import InputError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

GROUP = "SUPMER_NODES"  # environment variable: the group that a run trains with, as JSON
PORT = 29400  # torchrun's own default
MODULES = frozenset({"tasks.metatrain.torchrun", "tasks.weights.torchrun"})  # no other is run for another node
JOIN_SECONDS = 1800  # that a training waits for all of its nodes
CONNECT_SECONDS = 300  # that a node waits for the run which it joins
_POLL_SECONDS = 0.3
_LATE_SECONDS, _LEAVE_SECONDS = 60, 3
_OVER, _OFFERED, _JOINED, _LEFT = "over", "offered", "joined", "left"
_RANKS = (("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"))


@dataclass(frozen=True)
class GivenRank:
    """The place of this process among those that srun or an outer torchrun has started."""

    rank: int
    count: int
    local: int


@dataclass(frozen=True)
class Group:
    """The nodes that train together, and the address of their store; `given`: the environment gives the ranks."""

    nodes: int
    host: str
    port: int
    given: bool = False

    @property
    def address(self) -> str:
        """The address as a user writes it."""
        return f"{self.host}:{self.port}"

    @classmethod
    def of(cls, text: str) -> Group | None:
        """Return the group of the variable `GROUP`; None if that is empty."""
        return cls(**orjson.loads(text)) if text else None


@dataclass(frozen=True)
class Offer:
    """A training of a group: its number, the module to run, the folder of its job, and the threads of each rank.

    `port` is that of the first rank, if the ranks are given; torchrun chooses it otherwise.
    """

    number: int
    nodes: int
    module: str
    work: str
    threads: int
    port: int

    @property
    def name(self) -> str:
        """The name of the training in the store, and of its rendezvous."""
        return f"training-{self.number}"

    @property
    def end(self) -> str:
        """The name of its exit code in the store."""
        return f"end-{self.number}"


def given_rank(environment: Mapping[str, str] = os.environ) -> GivenRank | None:
    """Return the rank that torchrun or srun gave to this process; None if it gave none, or there is no other."""
    for names in _RANKS:
        if all(environment.get(name, "").isdecimal() for name in names):
            rank, count, local = (int(environment[name]) for name in names)
            return GivenRank(rank, count, local) if count > 1 else None
    return None


def wanted_group(nodes: int | None, address: str | None, environment: Mapping[str, str] = os.environ) -> Group | None:
    """Return the group that the user or the environment asks for; None for training on this node alone."""
    given = given_rank(environment)
    if given:
        return Group(given.count, *parsed(address or _address_of(environment)), given=True)
    if address is not None and nodes is None:
        raise InputError("--rendezvous: say with --nodes how many nodes train together")
    if nodes is None or nodes == 1:
        return None
    if address is None:
        raise InputError(f"--nodes {nodes}: give an address of this node too, like --rendezvous 10.0.0.1:{PORT}")
    return Group(nodes, *parsed(address))


def _address_of(environment: Mapping[str, str]) -> str:
    """Return the address of the first rank by the environment; torchrun itself uses the port MASTER_PORT."""
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT", "")
    if not host:
        raise InputError(
            "the environment gives ranks but no address: set MASTER_ADDR to the first node, or use --rendezvous"
        )
    return f"{host}:{int(port) + 1}" if port.isdecimal() else f"{host}:{PORT}"


def parsed(address: str) -> tuple[str, int]:
    """Return the host and the port of an address like 10.0.0.1:29400; raise InputError if it is none."""
    host, separator, port = address.rpartition(":")
    if not separator:
        host, port = address, str(PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16 or set(host) & set("/ @"):
        raise InputError(f"{address}: not an address: write it like 10.0.0.1:{PORT}")
    return host.strip("[]"), int(port)


@contextmanager
def hosted(group: Group | None) -> Iterator[None]:
    """Offer trainings at the group's address while the context is open; then tell the other nodes that it is over."""
    if group is None:
        yield
        return
    os.environ[GROUP] = orjson.dumps(asdict(group)).decode()  # for the processes that train
    store = _store(group, host=True)
    try:
        yield
    finally:
        store.set(_OVER, "1")
        _await_leaving(store, group)


def _await_leaving(store: TCPStore, group: Group) -> None:
    """Wait until the other nodes have read that it is over, because the store ends with this process.

    Ranks that are given come for certain, even if this process ends before they have started.
    """
    deadline = time.monotonic() + (_LATE_SECONDS if group.given else _LEAVE_SECONDS)
    while time.monotonic() < deadline:
        expected = group.nodes - 1 if group.given else store.add(_JOINED, 0)
        if store.add(_LEFT, 0) >= expected:
            return
        time.sleep(_POLL_SECONDS / 3)


def _store(group: Group, *, host: bool) -> TCPStore:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else torch warns, with its stack, that a peer is gone
    from torch._C._distributed_c10d import TCPStore  # torch.distributed has it too, without saying so in its types

    patience = timedelta(seconds=CONNECT_SECONDS)
    try:
        return TCPStore(group.host, group.port, is_master=host, timeout=patience, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:  # torch's errors of networks and stores are RuntimeErrors
        if host:
            reason = str(error).partition("\n")[0][:160]
            raise InputError(
                f"{group.address}: cannot be served here: give a free port of this node ({reason})"
            ) from None
        raise InputError(
            f"{group.address}: no run answers: start `supmer run --nodes 2 --rendezvous HOST:PORT` there"
        ) from None


def train_together(group: Group, module: str, work: Path, ranks: int, threads: int) -> int:
    """Offer a training to the other nodes, run this node's part of it, and return the exit code of the part."""
    store = _store(group, host=False)
    port = _free_port() if group.given else 0
    offer = Offer(int(store.add(_OFFERED, 1)), group.nodes, module, str(work), threads, port)
    store.set(offer.name, orjson.dumps(asdict(offer)).decode())
    code = _run_part(group, offer, ranks, work / "ranks.log")
    store.set(offer.end, str(code))
    return code


def join(address: str, ranks_here: Callable[[], int], say: Callable[[str], None]) -> None:
    """Take part in the trainings of the run at an address until it is over; raise InputError if it breaks off.

    Args:
        address: the run's.
        ranks_here: returns the number of ranks for this node.
        say: prints a line.
    """
    group = Group(0, *parsed(address), given=given_rank() is not None)
    store = _store(group, host=False)
    say(f"joined the run at {group.address}")
    try:
        store.add(_JOINED, 1)
        number = max(int(store.add(_OFFERED, 0)), 1)
        while offer := _offered(store, number):
            _take_part(group, store, offer, ranks_here(), say)
            number += 1
        store.add(_LEFT, 1)
    except RuntimeError:  # torch's errors of networks
        gone = f"the run at {group.address} is gone"
        raise InputError(f"{gone}: finished work is kept: repeat `supmer run` there, and join again") from None
    say("the run is over")


def _offered(store: TCPStore, number: int) -> Offer | None:
    """Wait for a training, and return it; None if the run is over."""
    name = Offer(number, 0, "", "", 0, 0).name
    while not store.check([name]):
        if store.check([_OVER]):
            return None
        time.sleep(_POLL_SECONDS)
    return Offer(**orjson.loads(store.get(name)))


def _take_part(group: Group, store: TCPStore, offer: Offer, ranks: int, say: Callable[[str], None]) -> None:
    """Run this node's part of a training; raise InputError if it is not for this node, or breaks off."""
    work = Path(offer.work)
    if offer.module not in MODULES or not work.is_dir():
        raise InputError(f"{work}: not here: a node that joins needs the workspace of the run under the same path")
    if store.check([offer.end]):
        return
    own = Group(offer.nodes, group.host, group.port, group.given)
    say(f"{offer.name}: {ranks} {'rank' if ranks == 1 else 'ranks'} here, {offer.nodes} nodes")
    log = work / f"ranks-{socket.gethostname()}-{os.getpid()}.log"
    if _run_part(own, offer, ranks, log) == 0:
        return
    store.wait([offer.end], timedelta(seconds=CONNECT_SECONDS))
    if store.get(offer.end) != b"0":
        raise InputError(
            f"{offer.name}: broken off, because a rank or a node was lost ({log} says more): repeat `supmer run` at "
            f"{group.address}, and join again"
        )


def _run_part(group: Group, offer: Offer, ranks: int, log: Path) -> int:
    """Run the ranks of this node, and return the exit code; they end when the pipe to this process closes."""
    command, own = _torchrun(group, offer, ranks), _loopback(group.host) | {"OMP_NUM_THREADS": str(offer.threads)}
    if group.given:
        command, given = [sys.executable], given_rank()
        assert given is not None  # how the group came about
        ranked = {"RANK": given.rank, "WORLD_SIZE": given.count, "LOCAL_RANK": given.local, "MASTER_PORT": offer.port}
        own |= {"MASTER_ADDR": group.host} | {name: str(value) for name, value in ranked.items()}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
    words = [*command, "-m", offer.module, offer.work]
    with (
        log.open("wb") as said,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=said, stderr=said, env=inherited | own) as started,
    ):
        return started.wait()


def _torchrun(group: Group, offer: Offer, ranks: int) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nnodes={group.nodes}",
        f"--nproc-per-node={ranks}",
        "--max-restarts=0",  # the next run resumes from a checkpoint
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={group.address}",
        f"--rdzv-id={offer.name}",
        f"--rdzv-conf=is_host=0,join_timeout={JOIN_SECONDS}",  # the run hosts the store
        f"--local-addr={_own_address(group.host)}",
    ]


def _loopback(host: str) -> dict[str, str]:
    """Return the variable that keeps gloo on loopback, if the address is there and the user has not chosen."""
    local = host == "localhost" or host.startswith("127.")
    return {"GLOO_SOCKET_IFNAME": "lo"} if local and "GLOO_SOCKET_IFNAME" not in os.environ else {}


def _own_address(host: str) -> str:
    """Return the address under which `host` sees this node."""
    family, _, _, _, place = socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)  # sends nothing
        return str(probe.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
