"""Some rows of a stored array as an array of their own; none is read before it is asked for."""

from collections.abc import Callable

import numpy as np

from stages.core.store.mapped_rows import Reader


class Chosen:
    """The rows of a reader, `image dim`, in float32; `change` is applied to what is read, and gives `dim` columns."""

    def __init__(
        self,
        reader: Reader,
        rows: np.ndarray,
        change: Callable[[np.ndarray], np.ndarray] | None = None,
        dim: int | None = None,
    ) -> None:
        self.reader, self.rows, self.change = reader, rows, change
        self.shape = (len(rows), dim or reader.shape[1])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        values = self.reader[self.rows[which]].astype(np.float32)
        return values if self.change is None else self.change(values)
