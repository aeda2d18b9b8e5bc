import pytest
import torch

from polygrain.compute import processes
from polygrain.mpcl.pretraining import data_parallel
from tests.helpers.torchrun import torchrun

PROGRAM = """
import sys
from pathlib import Path
import torch
from polygrain.compute import processes
from polygrain.losses.barlow_twins import barlow_twins
from polygrain.mpcl.pretraining import data_parallel

torch.manual_seed(0)
x, y, network = torch.randn(8, 4), torch.randn(8, 4), torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(network.parameters(), 0.1)
rows = data_parallel.share(torch.arange(8))
z1, z2 = (data_parallel.gather(network(v[rows]), 0) for v in (x, y))
(barlow_twins(z1, z2, 0.1) / processes.count()).backward()
processes.add_up([p.grad for p in network.parameters()])
optimizer.step()
folder = Path(sys.argv[1])
values = [*network.weight.flatten().tolist(), float(data_parallel.mean(torch.tensor(float(processes.rank()))))]
(folder / f"{processes.count()}-{processes.rank()}").write_text(" ".join(f"{v:.6f}" for v in values))
"""


def test_alone__everything_is_the_identity():
    values = torch.randn(4, 3)
    assert (processes.rank(), processes.count()) == (0, 1)
    assert data_parallel.gather(values, 0) is values and data_parallel.mean(values) is values
    assert torch.equal(data_parallel.share(values), values)


def test_share__a_batch_that_does_not_divide_is_refused(monkeypatch):
    monkeypatch.setattr(processes, "count", lambda: 3)
    with pytest.raises(ValueError, match="a batch of 8 does not divide among 3 processes"):
        data_parallel.share(torch.arange(8))


@pytest.mark.slow
def test_torchrun__two_processes_take_the_step_of_one(tmp_path):
    """The gradient of a loss over the whole batch, its halves on two processes, is the gradient on one."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for count in (1, 2):
        torchrun(count, program, tmp_path)
    one = (tmp_path / "1-0").read_text().split()
    two = [(tmp_path / f"2-{rank}").read_text().split() for rank in range(2)]
    for row in two:
        assert [float(v) for v in row[:-1]] == pytest.approx([float(v) for v in one[:-1]], abs=2e-6)
        assert float(row[-1]) == 0.5
