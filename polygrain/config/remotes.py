"""Before a run: the listings of object stores are renewed, so that what changed there runs again.

DVC follows the listing files: one that stays the same reruns nothing.
"""

from pathlib import Path

from polygrain.config.compose import read_params
from polygrain.sources.streams import place
from polygrain.store.drafts import drafted


def renew(folder: Path) -> list[str]:
    """Lists anew what the tasks with `source: remote` read; a line for each that changed, or whose listing stays.

    It stays where a store is out of reach: `images` asks again if it has to read.
    """
    lines = []
    values = read_params(folder / "params.yaml")
    for name, task in values.get("tasks", {}).items():
        if task["source"] != "remote":
            continue
        file = folder / values["paths"][name]
        url = place.address_in(file)
        try:
            text = place.text_of(place.remote(url))
        except ValueError as error:
            lines.append(f"{name}: its last listing stays: {error}")
            continue
        if text != file.read_text(encoding="utf-8"):
            with drafted(file) as draft:
                draft.write_text(text, encoding="utf-8")
            lines.append(f"{name}: {url} has changed: its stages run again")
    return lines
