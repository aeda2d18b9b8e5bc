"""Numbers of GSP's public code, so that drift shows: transport, costs and zero-shot loss in float32.

gsp.npz was computed once with pytorch/gsp of yetigurbuz/generalized-sum-pooling at
b765b8890f82bc01e55ed32e7432a0fd71a1d4a6, on inputs drawn with torch's generator from the seed 20231002: its own forward
for costs, 100 iterations of transport (1,000 for mu .7), its closed-form gradient, its ZSRLoss with scale 9.5 and ridge
.05. It splits a batch in the middle and we split by the rank of the class, so the first six images are of even ranks.
The rest of that code (losses, metrics, other poolings) needs TensorFlow and was not run.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from polygrain.gsp.poolings.prototypes import costs
from polygrain.gsp.poolings.transport import weight_transport
from polygrain.losses.zero_shot import zero_shot_loss


@pytest.fixture(scope="module")
def oracle():
    with np.load(Path(__file__).with_name("gsp.npz"), allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def test_costs__are_the_references(oracle):
    ours = costs(oracle["features"].flatten(2), oracle["prototypes"])
    assert torch.allclose(ours, oracle["cost"].flatten(2), atol=2e-6)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.5, 0.3), (5.0, 0.3), (5.0, 0.7)])
def test_weight_transport__plan_and_gradient_are_the_references(oracle, epsilon, mu):
    cost = oracle["cost"].flatten(2).requires_grad_()
    theirs, to_plan, gradient = (
        oracle[f"{name}_{epsilon:g}_{mu:g}"].flatten(2) for name in ("plan", "to_plan", "gradient")
    )
    rho, pi = weight_transport(cost, mu, epsilon)
    n = cost.shape[-1]
    assert n / mu * (rho - theirs[:, 0]).abs().max() < 1e-6 and n / mu * (pi - theirs[:, 1:]).abs().max() < 1e-6
    (ours,) = torch.autograd.grad((rho * to_plan[:, 0]).sum() + (pi * to_plan[:, 1:]).sum(), cost)
    assert (ours - gradient).norm() < 1e-5 * gradient.norm()


def test_zero_shot_loss__value_and_gradient_are_the_references(oracle):
    attributes = oracle["attributes"].requires_grad_()
    loss = zero_shot_loss(attributes, oracle["labels"], oracle["classes"], ridge=0.05, scale=9.5)
    (gradient,) = torch.autograd.grad(loss, attributes)
    assert torch.allclose(loss, oracle["zero_shot"], rtol=1e-5)
    assert (gradient - oracle["zero_shot_gradient"]).norm() < 1e-4 * gradient.norm()
