import pytest
import torch
from timm.optim import Lars

from polygrain.mpcl.pretraining.optimizer import OptimizerParams, build_optimizer


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW), ("lars", Lars)])
def test_build_optimizer__scales_the_rate_and_leaves_frozen_parameters_out(name, kind):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    module[2].requires_grad_(False)
    optimizer = build_optimizer(module, OptimizerParams(name=name, learning_rate=0.4, weight_decay=0.1), 64)
    assert isinstance(optimizer, kind)
    groups = optimizer.param_groups
    assert {id(p) for g in groups for p in g["params"]} == {id(p) for p in module[:2].parameters()}
    assert all(g["lr"] == pytest.approx(0.1) for g in groups)
    decays = {p.ndim: g["weight_decay"] for g in groups for p in g["params"]}
    assert decays == ({2: 0.1, 1: 0.0} if name == "lars" else {2: 0.1, 1: 0.1})
    if name == "lars":  # biases and norms may have a rate of their own
        params = OptimizerParams(name=name, learning_rate=0.2, weight_decay=0.1, vector_rate=0.004)
        rates = {p.ndim: g["lr"] for g in build_optimizer(module, params, 512).param_groups for p in g["params"]}
        assert rates == {2: pytest.approx(0.4), 1: pytest.approx(0.008)}
