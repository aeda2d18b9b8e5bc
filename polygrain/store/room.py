"""Whether the disk has room for what is about to be written, asked before the work."""

import logging
import shutil
from pathlib import Path

LARGE = 10**9  # bytes; what takes less is not worth a line

log = logging.getLogger(__name__)


def require(output: Path, needed: int, what: str) -> None:
    """Says how many bytes `what` takes at `output`; ValueError where the disk there has fewer left.

    DVC's cache takes as much again where the file system cannot share blocks between two files.
    """
    place = next(folder for folder in (output.absolute(), *output.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    said = f"{what} take {needed / 1e9:,.2f} GB at {output}"
    if needed > free:
        raise ValueError(
            f"{said}, and {free / 1e9:,.2f} GB are free there: free some space, or store less (a smaller images.side, "
            "images.stored: jpeg, fewer images); DVC's cache takes as much again on a file system without reflinks"
        )
    if needed >= LARGE:
        log.info("%s, of %.2f GB free", said, free / 1e9)
