"""`polygrain serve`: runs that the pages start, or the clock."""

from typing import Annotated

import typer

from polygrain.cli.options import Jobs, Profile, Stages


def serve(
    stages: Stages = None,
    profile: Profile = None,
    jobs: Jobs = None,
    cron: Annotated[str | None, typer.Option(metavar="WHEN", help='"0 2 * * *": every night at two')] = None,
    name: Annotated[str, typer.Option(help="what the pages call it")] = "graph",
) -> None:
    """Let the pages of `polygrain ui`, or the clock, start runs here.

    Example: polygrain serve --cron "0 2 * * *"
    """
    from pipeline import workers

    workers.serve(profile, stages, jobs, cron, name)
