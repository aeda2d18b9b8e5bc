"""Before a run: the listings of object stores are renewed, so that what changed there runs again.

`python -m polygrain.config.remotes FOLDER` lists what the tasks of its params.yaml name with `source: remote`. DVC
follows the listing files: one that stays the same reruns nothing. Where a store cannot be reached, its listing stays.
"""

import os
import sys
from pathlib import Path

from polygrain.config import document
from polygrain.sources.streams import place


def renew(folder: Path) -> list[str]:
    """Renews the listings; returns a line for each that changed, and for each that cannot be listed now."""
    params = folder / "params.yaml"
    tasks = (document.values(document.text(params), str(params)) or {}).get("tasks", {})
    said = []
    for name, task in tasks.items():
        if not isinstance(task, dict) or task.get("source") != "remote":
            continue
        file = folder / str(task.get("path"))
        url = place.address_in(file)
        try:
            text = place.text_of(place.remote(url))
        except ValueError as error:
            said.append(f"{name}: {error}; what was listed last is taken")
            continue
        if text != file.read_text(encoding="utf-8"):
            fresh = file.with_name(f"{file.name}.partial")
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, file)
            said.append(f"{name}: {url} has changed, and what hangs on it runs again")
    return said


def main() -> None:
    try:
        for line in renew(Path(sys.argv[1])):
            print(line, file=sys.stderr)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
