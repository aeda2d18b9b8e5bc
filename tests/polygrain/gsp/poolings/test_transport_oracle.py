"""GSP's transport against numbers that the authors' code computed once: drift on either side of the formulas shows.

`gsp_transport.npz` is of yetigurbuz/generalized-sum-pooling at b765b8890f82bc01e55ed32e7432a0fd71a1d4a6, the autograd
function of pytorch/gsp/transport_layer.py, in float64 (1/n is a float32 there, so it ends at 1e-7): costs uniform in
0..2 from `torch.Generator().manual_seed(0)`, a random gradient for (rho, pi), and `plan` (rho first) and `gradient` for
each mu, epsilon and number of iterations.
"""

import numpy as np
import pytest
import torch

from polygrain.gsp.poolings.transport import iterated_transport, weight_transport
from tests.helpers.project import ROOT

ORACLE = np.load(ROOT / "tests/oracles/gsp_transport.npz", allow_pickle=False)
CASES = [f"mu {mu:g}, epsilon {epsilon:g}" for mu, epsilon in zip(ORACLE["mu"], ORACLE["epsilon"], strict=True)]


@pytest.mark.parametrize("case", range(len(CASES)), ids=CASES)
@pytest.mark.parametrize("iterated", [False, True], ids=["exact", "iterated"])
def test_transport__has_the_plan_and_the_gradient_of_the_authors_code(case, iterated):
    mu, epsilon, iterations = (ORACLE[name][case].item() for name in ("mu", "epsilon", "iterations"))
    cost = torch.from_numpy(ORACLE["cost"]).requires_grad_()
    if iterated:
        rho, pi = iterated_transport(cost, mu, epsilon, iterations, "closed")
    else:
        rho, pi = weight_transport(cost, mu, epsilon)
    plan = torch.cat([rho.unsqueeze(1), pi], 1)
    (gradient,) = torch.autograd.grad((plan * torch.from_numpy(ORACLE["to_plan"])).sum(), cost)
    for found, name in ((plan, "plan"), (gradient, "gradient")):
        expected = torch.from_numpy(ORACLE[name][case])
        assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
