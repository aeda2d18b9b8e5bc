"""dvc.lock in the graph's order, so that a parallel run leaves the same bytes as a serial one."""

import os
import re
from pathlib import Path

from pipeline import graph


def sorted_entries(text: str, order: list[str]) -> str:
    """The text of a dvc.lock with the entries of the named stages in this order; entries of other stages follow.

    DVC appends each stage as it finishes, so the order of parallel runs is chance, and git shows moves as changes.
    """
    opening = re.search(r"^stages:\n", text, re.M)
    if opening is None:
        return text
    head, body = text[: opening.end()], text[opening.end() :]
    # An entry is a key indented by two and everything deeper after it; what follows the last entry is not an entry.
    entries = re.findall(r"^  (\S.*?):\n((?:   .*\n)*)", body, re.M)
    pieces = [f"  {key}:\n{lines}" for key, lines in entries]
    if "".join(pieces) != body[: sum(map(len, pieces))]:
        return text
    rest = body[sum(map(len, pieces)) :]
    place = {name: number for number, name in enumerate(order)}
    ranks = [place.get(key.strip("'\""), len(place)) for key, _ in entries]
    return head + "".join(pieces[i] for i in sorted(range(len(pieces)), key=ranks.__getitem__)) + rest


def put_in_order(folder: Path, order: list[str]) -> None:
    """Rewrites the folder's dvc.lock in this order, as a whole or not at all, while no dvc works on it."""
    file = folder / "dvc.lock"
    with graph.opened(folder):
        if not file.exists():
            return
        text = file.read_text(encoding="utf-8")
        fresh = sorted_entries(text, order)
        if fresh != text:
            partial = file.with_name("dvc.lock.partial")
            partial.write_text(fresh, encoding="utf-8")
            os.replace(partial, file)
