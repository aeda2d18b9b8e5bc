"""`polygrain flow`: the graph's branches side by side, to watch in a browser."""

from typing import Annotated

import typer

from polygrain.cli.options import Jobs, Profile, Stages


def flow(
    stages: Stages = None,
    profile: Profile = None,
    jobs: Jobs = None,
    workers: Annotated[bool, typer.Option("--workers", help="on the machines that run `polygrain worker`")] = False,
) -> None:
    """Run what is stale, side by side, and watch it in a browser.

    Example: polygrain flow --profile shoes --jobs 2
    """
    from pipeline import flow as graph

    graph.main(profile, stages, jobs, workers)
