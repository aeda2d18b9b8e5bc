import torch
from torch import nn

from benchmarks.passes import pixels_seen


def test_pixels_seen__every_image_that_enters_a_network_trained_or_not():
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 3, 1), nn.Conv2d(3, 1, 1).requires_grad_(False))
    grey = nn.Conv2d(1, 3, 3)
    with pixels_seen() as seen:
        network[:2](torch.zeros(5, 3, 10, 12))
        with torch.inference_mode():
            network[:2](torch.zeros(1, 3, 7, 7))
        grey(torch.zeros(2, 1, 9, 9))
    network(torch.zeros(5, 3, 10, 12))
    assert seen == [5 * 120 + 49]
