"""Names, shapes and a forward of `pretrainedmodels` 0.7.4's BNInception, so that its published weights fit ours.

bn_inception.npz was computed once with that package, with the weights that `drawn` draws, on images drawn with the side
as the seed, in Caffe's form (blue, green, red in 0..255 less 104, 117, 128).
"""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from polygrain.gsp.folds.bn_inception import BNInception
from polygrain.gsp.folds.trunk import Backbone, load
from tests.helpers.project import ROOT


@pytest.fixture(scope="module")
def oracle():
    with np.load(ROOT / "tests/oracles/bn_inception.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def drawn(state):
    """Values for every tensor, by its place among the sorted names; convolutions are scaled by what they sum."""
    tensors = {}
    for place, (name, tensor) in enumerate(sorted(state.items())):
        values = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(place)) if tensor.ndim else 0
        if tensor.ndim == 4:
            values = (values - 0.5) * (12 * 2 / tensor[0].numel()) ** 0.5
        tensors[name] = torch.as_tensor(values, dtype=tensor.dtype)
    return tensors


def test_bn_inception__has_the_ports_tensors_and_parameters(oracle):
    network = BNInception()
    state = network.state_dict()
    assert [f"{name} {tuple(tensor.shape)}" for name, tensor in sorted(state.items())] == oracle["names"].tolist()
    assert sum(p.numel() for p in network.parameters()) == oracle["parameters"] == 11_295_240 - 1_025_000  # ImageNet's


@pytest.mark.parametrize("side", [224, 227])
def test_load__a_file_with_the_ports_names_gives_its_map(oracle, side, tmp_path):
    """The file has a classifier, norms of `1 channel` and no counts, as the oldest published one."""
    tensors = drawn(BNInception().state_dict()) | {"last_linear.weight": torch.zeros(1000, 1024)}
    tensors = {name: t[None] if "_bn." in name else t for name, t in tensors.items() if "num_batches" not in name}
    save_file(tensors, tmp_path / "weights.safetensors")
    values = {"weights": "file", "path": str(tmp_path / "weights.safetensors"), "architecture": "bn_inception"}
    values |= {"mean": None, "std": None, "depth": None, "is_trained": True, "freezes_norm": True}
    images = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(side))
    with torch.no_grad():
        maps = load(Backbone(**values), tmp_path, 0)(images)
    for place, part in (("places", maps.mean(1)[0]), ("channels", maps.mean((2, 3))[0])):
        expected = torch.from_numpy(oracle[f"{place}_{side}"])
        assert torch.allclose(part, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
