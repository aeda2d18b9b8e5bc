"""Before a run: `python -m pipeline.ready [--profile P]` mends what a kill or a stray write has left, and says so."""

import argparse
import sys

from pipeline import cache, graph


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.ready", description=__doc__)
    parser.add_argument("--profile", metavar="P")
    arguments = parser.parse_args()
    try:
        cache.mend(graph.folder_of(arguments.profile))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
