"""`polygrain run`: the stale stages of the graph, one after another."""

import sys
from typing import Annotated

import typer

from polygrain.cli.options import Profile, Stages


def run(
    stages: Stages = None,
    profile: Profile = None,
    dry: Annotated[bool, typer.Option("--dry", help="say what would run, and why")] = False,
) -> None:
    """Run what is stale: the whole graph, or some stages.

    Stages run with all they read. A second call runs nothing; a killed one continues where it was.

    Example: polygrain run --profile shoes
    """
    from pipeline import run as graph

    sys.exit(graph.main(profile, stages, dry))
