import pytest
import torch
from torch import nn

from polygrain.mpcl.pretraining.split_norm import SplitBatchNorm2d, shuffled


def test_split_batch_norm__each_part_is_normalised_alone():
    x = torch.randn(8, 3, 4, 4) * 5 + 2
    ours = SplitBatchNorm2d(3, 2, 1e-5, 0.1)
    parts = [nn.BatchNorm2d(3) for _ in range(2)]
    expected = torch.empty_like(x)
    for i, part in enumerate(parts):
        expected[i::2] = part(x[i::2])
    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(ours.running_mean, (parts[0].running_mean + parts[1].running_mean) / 2)
    torch.testing.assert_close(ours.running_var, (parts[0].running_var + parts[1].running_var) / 2)


def test_split_batch_norm__is_plain_in_evaluation():
    ours, plain, x = SplitBatchNorm2d(3, 2, 1e-5, 0.1).eval(), nn.BatchNorm2d(3).eval(), torch.randn(5, 3, 4, 4)
    torch.testing.assert_close(ours(x), plain(x))
    with pytest.raises(ValueError, match="7 does not divide"):
        ours.train()(torch.randn(7, 3, 4, 4))


def test_shuffled__gives_each_image_its_own_result_among_other_company():
    seen = []

    def network(images):
        seen.append(images.clone())
        return images.flatten(1) * 2

    images = torch.arange(12.0).view(6, 1, 1, 2)
    assert torch.equal(shuffled(network, images, torch.Generator().manual_seed(0)), images.flatten(1) * 2)
    assert not torch.equal(seen[0], images)
