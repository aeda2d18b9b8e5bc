"""`polygrain fetch`: results from the team."""

import typer

from polygrain.cli.options import Profile, Remote, Stages


def fetch(stages: Stages = None, profile: Profile = None, remote: Remote = None) -> None:
    """Bring what the team's remote has, and run nothing.

    With stages, it brings these and what they read.

    Example: polygrain fetch --remote ssh://user@host/srv/polygrain
    """
    from pipeline import prepare, share
    from polygrain.encoder.kept import keeping

    folder = prepare.ready(profile, inputs=False)
    with keeping(folder, ["choice"]):
        typer.echo(share.fetch(folder, remote, stages or ()))
