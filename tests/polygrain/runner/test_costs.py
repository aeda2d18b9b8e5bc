import subprocess
import sys

import torch
from torch import nn

from polygrain.runner.costs import Cost, pixels_seen, read, table


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


def test_pixels_seen__a_stage_without_torch_does_not_load_it():
    program = "import sys; from polygrain.runner import costs\nwith costs.pixels_seen() as seen: assert seen == [0]"
    done = subprocess.run([sys.executable, "-c", f"{program}\nassert 'torch' not in sys.modules"], check=False)
    assert done.returncode == 0


def test_read__last_lines_alone_and_those_of_several_processes_together():
    lines = ["features@a: from data/images/a, data/resolution", "features@a: 3 images x 2 (2.0 s, 3,072 pixels)"]
    lines += [
        "",
        "epoch 1/2: loss 0.5",
        f"features@a: 3 images x 2 ({Cost(1.5, 2048)})",
        f"images@a: 5 of 6 ({Cost(9)})",
    ]
    assert read(lines) == {"features@a": Cost(2.0, 5120), "images@a": Cost(9.0)}


def test_table__passes_of_the_chosen_side_and_their_sum():
    costs = {"images@a": Cost(6.0), "features@a": Cost(2.0, 4 * 32**2)}
    rows = [line.split() for line in table(costs, 32)]
    assert rows[1:] == [["images@a", "6.0"], ["features@a", "2.0", "4", "2"], ["all", "8.0", "4", "0"]]
    assert [line.split() for line in table(costs, None)][2] == ["features@a", "2.0"]
