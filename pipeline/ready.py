"""Before a run: what a kill or a stray write has left is mended, and every value of params.yaml looked at.

`python -m pipeline.ready` only mends; the install does that.
"""

import sys
from pathlib import Path

from pipeline import cache, graph, project
from polygrain.runner import command


def make_ready(profile: str | None = None) -> Path:
    """The folder of the graph, fit to be run by this program.

    ValueError names an unknown profile, each wrong value, or the clone whose own program should run it.
    """
    root = project()
    own = root / "pipeline" if root else None
    if own and own.is_dir() and not own.samefile(Path(__file__).parent):
        raise ValueError(f"{root} has a polygrain of its own: run {root}/.venv/bin/polygrain there (`make install`)")
    folder = graph.folder_of(profile)
    cache.mend(folder)
    if (root / "polygrain/runner").is_dir():
        command.prepare(folder / "params.yaml")
    return folder


def main() -> None:
    try:
        cache.mend(graph.folder_of())
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
