"""The quick, the default and the best way to run a new profile: what each takes on this machine, and what it finds."""

from collections.abc import Callable, Iterator

from polygrain.encoder import installed
from polygrain.new.encoder import LITE, QUICK, STORED, native_side
from polygrain.new.estimate import shown
from polygrain.new.profile import Settings
from polygrain.new.request import Request

HALF_HOUR = 1800  # seconds
SMALL = 224  # px; images below are like the smaller ones that were measured
WORK = {"lite0": 1, "lite1": 1.3, "lite2": 1.5}  # of a pixel, by the same table
# {network: {side: R-Precision in percent}}, behind the layer and smoothed: docs/results/ladder.csv.
MEASURED = {
    "tasks": {"lite0": {96: 38, 160: 45}},
    "large": {"lite0": {96: 37, 144: 44, 224: 48}, "lite1": {240: 48}, "lite2": {260: 49}},
}


def ways(request: Request, settings: Settings, each: float, seconds: Callable[[float, float], float]) -> Iterator[str]:
    """What the default finds, and each other way, if weights of Lite are asked for at a side that nobody named; else a
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
