"""Some rows of a stored array as an array of their own; none is read before it is asked for."""

import numpy as np

from stages.core.store.mapped_rows import Reader


class Chosen:
    """The rows of a reader, `image dim`, read as float32 by slices or by their own numbers."""

    def __init__(self, reader: Reader, rows: np.ndarray) -> None:
        self.reader, self.rows = reader, rows
        self.shape = (len(rows), reader.shape[1])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        return self.reader[self.rows[which]].astype(np.float32)
