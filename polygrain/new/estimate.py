"""An estimate of the time of a run on this machine: the passes of the encoder in all stages, times that of one pass."""

import time

import torch

from polygrain.compute import device
from polygrain.encoder.config import Config
from polygrain.encoder.model import Model

TIMED = 3
LARGE = 0.1  # seconds for an image
SAMPLE = 240  # images of a task on which sides and candidates are compared: two samples
VIEWS = 5  # of each, at its own side and at the chosen one, if that is another
LOOKS = 2, 6.5  # passes for what the reference sees of each: the chosen side, or 1.5 times it, too; mirrored as well
CLUSTERED = 20_000  # training images, at most, that each trained candidate embeds for its last layer
GAIN = 0.8  # share of a thread that is of use
TRAINING = 3  # passes of a training step: one forward, and one backward that costs two


def pass_time(config: Config) -> float:
    """Seconds that an image takes, by timed batches; the weights do not matter. A large network is timed on one image.

    A CPU is timed by one thread: several in a batch this small would wait for each other where others compute, too.
    """
    where, threads = device.best(), torch.get_num_threads()
    torch.set_num_threads(1)
    model = Model(config)
    model.prepare()
    model.to(where)

    def seconds(batch: int) -> float:
        images = torch.zeros(batch, 3, config.size, config.size, device=where)
        start = time.perf_counter()
        model(images).sum().item()
        return (time.perf_counter() - start) / batch

    try:
        with torch.inference_mode():
            seconds(1)  # what is set up in the first pass
            each = seconds(1)
            if each < LARGE:
                each = min(seconds(device.inference(config.side)[0]) for _ in range(TIMED))
    finally:
        torch.set_num_threads(threads)
    return each / (max(1, GAIN * threads) if where.type == "cpu" else 1)


def passes(images: int, train: int, tasks: int, ks: int, cost: float, epochs: int) -> float:
    """Passes of the encoder at its own side, where the chosen side costs `cost` of them; 0 `ks` train nothing."""
    sample, sides = min(tasks * SAMPLE, train), cost + (cost > 1)
    compared = sample * (VIEWS * sides + LOOKS[cost > 1] * cost)
    embedded = images * sides  # the row `encoder`, and the features, from which all else follows
    if not ks:
        return compared + embedded
    # Each trained model is compared and evaluated; the one that is chosen is fitted, evaluated and searched, too.
    trained = (ks + 3) * (sample * VIEWS + min(train, CLUSTERED) + images) * cost + (train + 2 * images) * cost
    adaptors = ks * epochs * train * TRAINING * cost
    fusions = 2 * (epochs / 2) * 2 * train * TRAINING * cost * (1 + ks / 4)
    return compared + embedded + trained + adaptors + fusions


def shown(seconds: float) -> str:
    """Such as `about 3 minutes`."""
    minutes = seconds / 60
    return f"about {minutes / 60:.1f} hours" if minutes > 90 else f"about {max(2, round(minutes))} minutes"
