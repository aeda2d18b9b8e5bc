"""The quick, the default and the best way to run a new profile: what each takes on this machine, and what it finds."""

from collections.abc import Callable, Iterator

from polygrain.app.encoder import LITE, QUICK, STORED, native_side
from polygrain.app.estimate import shown
from polygrain.config.new import Settings
from polygrain.config.request import Request
from polygrain.encoder import installed

HALF_HOUR = 1800  # seconds
SMALL = 224  # px; images below are like the smaller ones that were measured
WORK = {"lite0": 1, "lite1": 1.3, "lite2": 1.5}  # of a pixel, by the same table
# {network: {side: R-Precision in percent}}, behind the layer and smoothed: docs/results/ladder.csv.
MEASURED = {
    "tasks": {"lite0": {96: 38, 160: 45}},
    "large": {"lite0": {96: 37, 144: 44, 224: 48}, "lite1": {240: 48}, "lite2": {260: 49}},
}


def ways(request: Request, settings: Settings, each: float, seconds: Callable[[float, float], float]) -> Iterator[str]:
    """A line for each way, if weights of Lite are asked for at a side that nobody named; else one if it takes long.

    `each`: seconds of a pass by the `settings`. `seconds`: of a run, by those of a pass and by the passes of the model.
    """
    name = request.name or "lite0"
    architecture = settings.encoder.get("architecture")
    side = native_side(architecture, QUICK) if architecture else settings.side
    sooner = shown(seconds(each * (side / settings.side) ** 2, STORED**2))
    if architecture == LITE.get(name) and not request.side and side < settings.side:
        best = [known for known, of in LITE.items() if installed.file_of(of)][-1]
        largest = native_side(LITE[best], request.shorter)
        slowest = each * WORK[best] / WORK[name] * (largest / settings.side) ** 2
        yield "three ways: the time on this machine, and how many of 100 neighbours were right by docs/results.md"
        measured = MEASURED["tasks" if (request.shorter or SMALL) < SMALL else "large"]
        for words, known, px, time in (
            (f"quick, --side {side}", name, side, sooner),
            (f"default, {settings.side} px", name, settings.side, shown(seconds(each, settings.cost))),
            (f"best, --encoder {best}", best, largest, shown(seconds(slowest, settings.cost))),
        ):
            right = [percent for measured_at, percent in measured.get(known, {}).items() if measured_at <= px]
            yield f"  {words}: {time}" + (f", {right[-1]}" if right else "")
    if seconds(each, settings.cost) > HALF_HOUR and side < settings.side:
        yield f"that is more than half an hour: with --side {side} it is {sooner}"
