"""What stages cost: seconds, and pixels that went into networks. A stage's last line says it, a run ends with a table.

The report does not have it: an output has the same bytes twice, and no two runs take the same time.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

# "features@grocery: 2,936 images x 1280 (12.3 s, 60,880,896 pixels)"
LINE = re.compile(r"(\S+): .*\(([\d.]+) s(?:, ([\d,]+) pixels)?\)")


class Cost(NamedTuple):
    seconds: float
    pixels: int = 0

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s" + f", {self.pixels:,} pixels" * bool(self.pixels)

    def passes(self, side: int | None) -> int:
        """Images of this side, px, that have as many pixels; 0 where the side is not known."""
        return round(self.pixels / side**2) if side else 0


@contextmanager
def pixels_seen() -> Iterator[list[int]]:
    """A list of one number: the pixels of images that went into a network's first convolution, a ViT's patches too."""
    seen, torch = [0], sys.modules.get("torch")
    if torch is None:  # not loaded by this stage, so it has no network
        yield seen
        return

    def count(module: Any, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            images, _, height, width = inputs[0].shape
            seen[0] += images * height * width

    hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield seen
    finally:
        hook.remove()


def read(lines: Iterable[str]) -> dict[str, Cost]:
    """The cost of each stage whose last line is among these; of several processes the longest time and all pixels."""
    result: dict[str, Cost] = {}
    for match in filter(None, map(LINE.fullmatch, lines)):
        known, pixels = result.get(match[1], Cost(0)), int((match[3] or "0").replace(",", ""))
        result[match[1]] = Cost(max(known.seconds, float(match[2])), known.pixels + pixels)
    return result


def table(costs: dict[str, Cost], side: int | None) -> list[str]:
    """A line for each stage and for all. A pass is an image of this side, px; others are weighed by their pixels."""
    sums = map(sum, zip(*costs.values(), strict=True))
    shown = [("stage", "seconds", "passes", "images/s")]
    for name, cost in (costs | {"all": Cost(*sums)}).items() if costs else ():
        passes = cost.passes(side)
        rate = f"{passes / cost.seconds:,.0f}" if passes and cost.seconds else ""
        shown.append((name, f"{cost.seconds:,.1f}", f"{passes:,}" if passes else "", rate))
    width = max(len(row[0]) for row in shown)
    return [f"{name:{width}}  {seconds:>9}  {passes:>11}  {rate:>8}".rstrip() for name, seconds, passes, rate in shown]
