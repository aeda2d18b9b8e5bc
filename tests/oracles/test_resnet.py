"""The start of MPCL's ResNet-50 has the moments of torchvision's, which MoCo v2 and Barlow Twins build on."""

import pytest
import torchvision

from tests.helpers.pretraining_world import started


# MoCo's command has torchvision's defaults, Barlow Twins' main.py asks for zeros behind each block.
@pytest.mark.parametrize(("profile", "zero"), [("imagenet", False), ("imagenet100-barlow", True)])
def test_profile__resnet_starts_as_the_references(profile, zero):
    expected = torchvision.models.resnet50(zero_init_residual=zero)
    del expected.fc  # projectors take its place
    ours, theirs = dict(started(profile).backbone.named_parameters()), dict(expected.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        mean, std = theirs[name].mean().item(), theirs[name].std().item()
        assert parameter.mean().item() == pytest.approx(mean, abs=8 * std / parameter.numel() ** 0.5), name
        assert parameter.std().item() == pytest.approx(std, rel=0.05), name
