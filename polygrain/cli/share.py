"""`polygrain share`: results to the team."""

import typer

from polygrain.cli.options import Profile, Remote


def share(profile: Profile = None, remote: Remote = None) -> None:
    """Send every result that is up to date to the team's remote.

    Example: polygrain share --remote ssh://user@host/srv/polygrain
    """
    from pipeline import prepare, project
    from pipeline import share as results

    folder = prepare.ready(profile, inputs=False)
    if not (folder / "dvc.lock").exists():
        ran = [
            f"--profile {file.parent.name}" for file in sorted((project(folder) or folder).glob("profiles/*/dvc.lock"))
        ]
        others = f"; there are results of {', '.join(ran)}" if ran else ""
        raise ValueError(f"no stage has run in {folder}: there is nothing to share{others}")
    typer.echo(results.push(folder, remote))
