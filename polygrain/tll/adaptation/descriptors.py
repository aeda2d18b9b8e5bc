"""The descriptors of a study's pairs, as they are and as each run reduces them."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polygrain.compute import device
from polygrain.store import arrays
from polygrain.tll.adaptation.reduction import Reduction

SIDES = ("left", "right")
VIEWS = ("", "_flipped")


class Sides(NamedTuple):
    """Reduced descriptors: row i of `left` belongs to row i of `right`, in each view (original, mirrored)."""

    left: Float[Tensor, "run view pair dim"]
    right: Float[Tensor, "run view pair dim"]


@dataclass(frozen=True)
class Descriptors:
    """`values[view][side]` is `pair dim`; the first view is the original, the second, if there, the mirrored one."""

    values: list[list[np.ndarray]]

    def __len__(self) -> int:
        return len(self.values[0][0])


def read(features: Path) -> Descriptors:
    """All descriptors of a study."""
    views = [view for view in VIEWS if (features / f"left{view}").is_dir()]
    readers = [[arrays.open(features / f"{side}{view}" / "descriptors.zarr") for side in SIDES] for view in views]
    return Descriptors([[reader[:] for reader in view] for view in readers])


def reduced(descriptors: Descriptors, fits: list[Reduction], rows: Int[np.ndarray, "run pair"], views: int) -> Sides:
    """The chosen rows of each run under its own fit, in the first `views` views, on the device that trains."""
    last, reduced_views = None, []
    columns: list[list[Tensor]] = [[], []]
    for fit, chosen in zip(fits, rows, strict=True):
        if fit is not last:  # one fit may serve all runs
            last, reduced_views = fit, [[fit.apply(side) for side in view] for view in descriptors.values[:views]]
        for side, column in enumerate(columns):
            column.append(torch.from_numpy(np.stack([view[side][chosen] for view in reduced_views])))
    return Sides(*(torch.stack(column).to(device.best()) for column in columns))


def originals(descriptors: Descriptors, rows: Int[np.ndarray, " pair"]) -> tuple[Tensor, Tensor]:
    """The concatenated layers of both sides of the chosen pairs, unreduced."""
    left, right = (torch.from_numpy(side[rows]).to(device.best()) for side in descriptors.values[0])
    return left, right
