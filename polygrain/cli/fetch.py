"""`polygrain fetch`: results from the team."""

import typer

from polygrain.cli.options import Profile, Remote, Stages


def fetch(stages: Stages = None, profile: Profile = None, remote: Remote = None) -> None:
    """Bring what the team's remote has, and run nothing; with stages, these and what they read.

    Example: polygrain fetch --remote ssh://user@host/srv/polygrain
    """
    from pipeline import prepare, share

    typer.echo(share.fetch(prepare.ready(profile, inputs=False), remote, stages or ()))
