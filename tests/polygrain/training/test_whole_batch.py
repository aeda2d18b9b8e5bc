import pytest
import torch

from polygrain.training.whole_batch import whole
from tests.helpers.torchrun import torchrun

PROGRAM = """
import sys
from pathlib import Path
import torch
from polygrain.compute import processes
from polygrain.losses.barlow_twins import barlow_twins
from polygrain.training.whole_batch import whole

torch.manual_seed(0)
x, y, network, head = torch.randn(9, 4), torch.randn(9, 4), torch.nn.Linear(4, 3), torch.nn.Linear(3, 5)
rows = processes.share(9)
z1, z2 = (head(whole(network(v[rows])[None], 1)[0]) for v in (x, y))
(barlow_twins(z1, z2, 0.1) / processes.count()).backward()
gradients = [p.grad for part in (network, head) for p in part.parameters()]
processes.add_up(gradients)
values = torch.cat([gradient.flatten() for gradient in gradients]).tolist()
(Path(sys.argv[1]) / f"{processes.count()}-{processes.rank()}").write_text(" ".join(f"{v:.8f}" for v in values))
"""


def test_whole__of_one_process_is_the_part_itself():
    part = torch.randn(3, 2, requires_grad=True)
    assert whole(part) is part


@pytest.mark.slow
def test_whole__two_processes_have_the_gradients_of_one(tmp_path):
    """Of nine rows each process takes its part through the network, and all of them through the head."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for count in (1, 2):
        torchrun(count, program, tmp_path)
    one, *two = ([float(v) for v in (tmp_path / name).read_text().split()] for name in ("1-0", "2-0", "2-1"))
    for values in two:
        assert values == pytest.approx(one, abs=1e-6)
