"""Memory that really runs out, in a process of its own with a limit: smaller pieces, the same gradients."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TRIED = """
import resource
import numpy as np, torch
from support.meta_examples import t5, task
from model.t5.backbone import backbone_of
from model.meta.meta_step import MixedTask, StepForm
from model.meta.objectives import MetaObjective
from model.prompt.passes import Passes

torch.set_num_threads(int(sys.argv[1]))
chance = np.random.default_rng(0)
tasks = [MixedTask(task(chance, size=48)) for _ in range(2)]
backbone, theta = backbone_of(t5(dtype=torch.float32, d_model=32, d_ff=256)), torch.randn(100, 32)
said = []

def gradients(graph_share):
    objective = MetaObjective(Passes(backbone, chunk_tokens=1_000_000), None, StepForm(), say=said.append)
    objective.graph_share = graph_share
    return objective.gradients(theta, tasks, 0.0, 2), objective

plenty, _ = gradients(100.0)
assert said == []
pages = int(open("/proc/self/statm").read().split()[0])
size = pages * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 24_000_000, -1))
scarce, objective = gradients(100.0)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
torch.testing.assert_close(scarce.parameters["prompt"], plenty.parameters["prompt"], rtol=1e-4, atol=1e-6)
print(objective.settings(), said)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_the_step_backs_off_until_it_fits(tmp_path, threads):
    tests = Path(__file__).parents[2]
    program = tmp_path / "tried.py"
    program.write_text(f"import sys; sys.path[:0] = [{str(tests)!r}, {str(tests.parent)!r}]\n{TRIED}")
    done = subprocess.run([sys.executable, program, str(threads)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory ran out: support sets are read twice" in done.stdout
    assert "chunks of" in done.stdout
