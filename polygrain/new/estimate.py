"""An estimate of the time of a run on this machine: the passes of the encoder in all stages, times that of one pass.

With it stand a quicker and a better way to run the profile: the time and the accuracy of each.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from polygrain.compute import device
from polygrain.encoder import installed
from polygrain.encoder.config import Config
from polygrain.encoder.model import Model
from polygrain.new.encoder import LITE, QUICK, STORED, better, choose, config_of, native_side
from polygrain.new.profile import EncoderSettings, Suited, Work
from polygrain.new.request import Request

EPOCHS = 6  # of the adaptors in photographs.yaml
TIMED = 3
LARGE = 0.1  # seconds for an image
SAMPLE = 240  # images of a task on which sides and candidates are compared: two samples
VIEWS = 5  # of each, at its own side and at the chosen one, if that is another
LOOKS = 2, 6.5  # passes of the reference over each: at the chosen side, or at 1.5 times it, too; mirrored as well
CLUSTERED = 20_000  # training images, at most, that each trained candidate embeds for its last layer
GAIN = 0.8  # share of a thread that is of use
TRAINING = 3  # passes of a training step: one forward, and one backward that costs two
HALF_HOUR = 1800  # seconds
SMALL = 224  # px; images below are like the smaller ones that were measured
WORK = {"lite0": 1, "lite1": 1.3, "lite2": 1.5}  # of a pixel, by the same table
# {network: {side: R-Precision in percent}}, behind the layer and smoothed: docs/results/ladder.csv.
MEASURED = {
    "tasks": {"lite0": {96: 38, 160: 45}},
    "large": {"lite0": {96: 37, 144: 44, 224: 48}, "lite1": {240: 48}, "lite2": {260: 49}},
}


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
            seconds(1)  # the first pass sets things up
            each = seconds(1)
            if each < LARGE:
                each = min(seconds(device.inference(config.side)[0]) for _ in range(TIMED))
    finally:
        torch.set_num_threads(threads)
    return each / (max(1, GAIN * threads) if where.type == "cpu" else 1)


def passes(work: Work, cost: float) -> float:
    """Passes of the encoder at its own side, where the chosen side costs `cost` of them; with 0 sets nothing trains."""
    images, train, tasks, ks, _ = work
    sample, sides = min(tasks * SAMPLE, train), cost + (cost > 1)
    compared = sample * (VIEWS * sides + LOOKS[cost > 1] * cost)
    embedded = images * sides  # the row `encoder`, and the features, from which all else follows
    if not ks:
        return compared + embedded
    # Each trained model is compared and evaluated; the one that is chosen is fitted, evaluated and searched, too.
    trained = (ks + 3) * (sample * VIEWS + min(train, CLUSTERED) + images) * cost + (train + 2 * images) * cost
    adaptors = ks * EPOCHS * train * TRAINING * cost
    fusions = 2 * EPOCHS * train * TRAINING * cost * (1 + ks / 4)
    return compared + embedded + trained + adaptors + fusions


def shown(seconds: float) -> str:
    """Such as `about 3 minutes`."""
    minutes = seconds / 60
    return f"about {minutes / 60:.1f} hours" if minutes > 90 else f"about {max(2, round(minutes))} minutes"


def ways(
    request: Request, settings: EncoderSettings, each: float, seconds: Callable[[float, float], float]
) -> Iterator[str]:
    """A line for each other way, if weights of Lite are asked for at a side that nobody named; else for a
    quicker one, if it takes long.

    `each`: seconds of a pass by the `settings`. `seconds`: of a run, by those of a pass and by the passes of the model.
    """
    name = request.name or "lite0"
    architecture = settings.encoder.get("architecture")
    side = native_side(architecture, QUICK) if architecture else settings.side
    if side >= settings.side:
        return
    sooner = shown(seconds(each * (side / settings.side) ** 2, STORED**2))
    if architecture == LITE.get(name) and not request.side:
        best = [known for known, of in LITE.items() if installed.file_of(of)][-1]
        largest = native_side(LITE[best], request.shorter)
        slowest = each * WORK[best] / WORK[name] * (largest / settings.side) ** 2
        measured = MEASURED["tasks" if (request.shorter or SMALL) < SMALL else "large"]
        for words, known, px in (
            ("", name, settings.side),
            (f"--side {side}: {sooner}", name, side),
            (f"--encoder {best}: {shown(seconds(slowest, settings.cost))}", best, largest),
        ):
            right = [percent for measured_at, percent in measured.get(known, {}).items() if measured_at <= px][-1:]
            if words:
                yield words + "".join(f", {percent} of 100" for percent in right)
            else:
                yield from (f"{percent} of 100 right in docs/results.md" for percent in right)
    elif seconds(each, settings.cost) > HALF_HOUR:
        yield f"--side {side}: {sooner}"


def suited(request: Request, root: Path, work: Work, again: str) -> Suited:
    """The settings for these images, and the time of a run, by the request about the encoder.

    Where that names none, the command `again` with a better one is the next step.
    """
    request = request._replace(shorter=work.sizes.shorter)
    settings, network = choose(request)

    def seconds(each: float, cost: float, work: Work = work) -> float:
        return work.sizes.seen * each * passes(work, cost)

    each, other = pass_time(config_of(settings, root)), work._replace(sets=0 if work.sets else 3)
    first, second = (shown(seconds(each, settings.cost, one)) for one in (work, other))
    options = [*ways(request, settings, each, seconds), f"with{'out' * bool(work.sets)} --train: {second}"]
    next_step = ""
    if request.name is None:
        option, others, config = better(request.shorter)
        took = shown(seconds(pass_time(config), others.cost))
        options.append(f"a better encoder helps most, {option}: {took}")
        next_step = f"{again} {option}, {took} on the machine that wrote this profile"
    return Suited(settings, f"cost: {first} on this machine, with {network}; {'; '.join(options)}", next_step)
