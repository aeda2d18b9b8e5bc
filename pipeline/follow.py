"""Another machine's part in a stage that several share: `python -m pipeline.follow STAGE [--profile NAME]`.

It runs the stage's command, as the first machine's DVC does, and records nothing: the output is the first machine's.
What the stage reads must be here already (`polygrain fetch --remote URL STAGE` brings it).
"""

import argparse
import os
import sys

from pipeline import graph


def main(stage: str, profile: str | None) -> None:
    folder = graph.folder_of(profile)
    words = graph.command_of(folder, stage)
    os.chdir(folder)
    os.execvp(words[0], words)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage")
    parser.add_argument("--profile")
    given = parser.parse_args()
    try:
        main(given.stage, given.profile)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
