"""Rows of any kind, and one way to cut them into blocks."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor

# Values that are changed at once.
BLOCK_VALUES = 2**22


@runtime_checkable
class Rows(Protocol):
    """An array, a tensor, or a store's reader: `row ...`, read by slices."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray | Tensor: ...


def blocks(rows: int | slice, step: int) -> list[slice]:
    """Slices of `step` rows that cover the rows; the last one may be shorter."""
    whole = rows if isinstance(rows, slice) else slice(0, rows)
    return [slice(start, min(start + step, whole.stop)) for start in range(whole.start, whole.stop, step)]


def blocks_within(rows: int | slice, width: int, values: int, least: int = 1) -> list[slice]:
    """`blocks` that hold at most `values` values, at `width` values a row, but `least` rows in any case."""
    return blocks(rows, max(least, values // max(1, width)))


def by_blocks(
    rows: Float[np.ndarray, "row dim"], change: Callable[[np.ndarray], np.ndarray], width: int | None = None
) -> Float32[np.ndarray, "row _"]:
    """Rows, each changed on its own, to `width` values; of mapped ones only the result is in memory as a whole."""
    result = np.empty((len(rows), rows.shape[1] if width is None else width), np.float32)
    for part in blocks_within(len(rows), rows.shape[1], BLOCK_VALUES):
        result[part] = change(rows[part])
    return result
