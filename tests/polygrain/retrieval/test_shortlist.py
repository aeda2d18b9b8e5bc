import numpy as np
import pytest
import torch

from polygrain.retrieval import shortlist as module
from polygrain.retrieval.shortlist import Shortlist


def plain(x, rows, k):
    """Exact products, summed one after another in float64."""
    scores = np.array([[sum((a * b).tolist()) for b in x.double().numpy()] for a in x[rows].double().numpy()])
    scores[np.arange(len(rows)), rows] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def draw(n, d, classes, spread):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(classes, d, generator=generator)[torch.arange(n) % classes]
    return torch.nn.functional.normalize(x + spread * torch.randn(n, d, generator=generator), dim=1)


@pytest.mark.parametrize(("n", "d", "classes"), [(256, 384, 60), (300, 96, 60), (1000, 33, 250)])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("spread", [1.0, 0.2])
def test_nearest__equals_exact_products(n, d, classes, k, spread):
    x = draw(n, d, classes, spread)
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:40]
    found = Shortlist(x).nearest(rows, k)
    assert (found.numpy() == plain(x, rows.numpy(), k)).all()


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7])
def test_nearest__tells_apart_what_half_precision_cannot(gap):
    # All others of a group lie within rounding of each other; in float64 their order is still clear.
    x = draw(400, 64, 40, 1.0)
    apart = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    x[1::40] = torch.nn.functional.normalize(x[1] + gap * apart, dim=1)
    rows = torch.arange(0, 400, 10) + 1
    assert (Shortlist(x).nearest(rows, 5).numpy() == plain(x, rows.numpy(), 5)).all()


def test_nearest__ties_equal_rows_by_index_and_leaves_only_the_query_out():
    x = draw(200, 50, 50, 0.5)
    x[[20, 90, 150]] = x[3].clone()
    found = Shortlist(x).nearest(torch.tensor([3, 20, 90, 150]), 3)
    assert found.tolist() == [[20, 90, 150], [3, 90, 150], [3, 20, 150], [3, 20, 90]]


def test_nearest__is_right_where_all_roundings_work_together():
    # Just beside the middle between two halves every number is rounded by as much as can be: of the query and of the
    # second row such that it seems farther than the third, by more than half of what the bound allows.
    sign = torch.randint(2, (64,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    odd, little = torch.arange(64) % 2 == 1, 2.0**-14
    query = sign * torch.where(odd, 1 + 2**-8 - little, 1 + 2**-8 + little)
    second = sign * torch.where(odd, 1.0625 + 2**-8 - little, -0.9375 + 2**-9 - little)
    third = sign * torch.where(odd, -0.9296875 - 2**-9 + little, 1.0625 - 2**-8 + little)
    x = torch.stack([query, second, third])
    halves, exact = x.bfloat16().double(), x.double()
    assert exact[0] @ exact[1] > exact[0] @ exact[2] and halves[0] @ halves[1] < halves[0] @ halves[2] - 0.7
    assert Shortlist(x).nearest(torch.tensor([0]), 1).item() == 1


def test_nearest__gives_up_where_the_list_would_be_long():
    apart = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    same = torch.nn.functional.normalize(torch.ones(2000, 16) + 1e-4 * apart, dim=1)
    assert Shortlist(same).nearest(torch.arange(100), 1) is None


def test_nearest__gives_up_beyond_a_right_angle(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 2.0)
    # Corners of a simplex: every other one lies at more than 90 degrees. A zero row is at 90 degrees to all.
    corners = torch.nn.functional.normalize(torch.eye(100) - 0.01, dim=1)
    assert Shortlist(corners).nearest(torch.arange(100), 1) is None
    assert Shortlist(torch.cat([draw(99, 16, 9, 0.5), torch.zeros(1, 16)])).nearest(torch.tensor([99]), 1) is None
