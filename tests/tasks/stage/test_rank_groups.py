"""Which nodes train together: by options, by Slurm's srun, by an outer torchrun."""

import pytest

from storage.errors import InputError
from tasks.stage.nodes import GivenRank, Group, given_rank, wanted_group

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
SRUN = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "MASTER_ADDR": "node1"}


def test_the_ranks_of_an_outer_torchrun_are_used_beside_its_own_port():
    assert given_rank(TORCHRUN) == GivenRank(3, 4, 1)
    assert wanted_group(None, None, TORCHRUN) == Group(4, "node1", 29501, given=True)


def test_the_ranks_of_srun_are_used_and_those_of_torchrun_inside_it_come_first():
    assert wanted_group(None, None, SRUN) == Group(2, "node1", 29400, given=True)
    assert given_rank(SRUN | TORCHRUN) == GivenRank(3, 4, 1)


def test_one_rank_alone_is_no_group():
    assert wanted_group(None, None, TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert wanted_group(None, None, {}) is None
    assert wanted_group(1, None, {}) is None


def test_ranks_without_an_address_are_refused():
    with pytest.raises(InputError, match="set MASTER_ADDR to the first node, or use --rendezvous"):
        wanted_group(None, None, {name: value for name, value in SRUN.items() if name != "MASTER_ADDR"})
    assert wanted_group(None, "10.0.0.1:29400", SRUN) == Group(2, "10.0.0.1", 29400, given=True)
