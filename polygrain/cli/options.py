"""Words that several commands take."""

import logging
from pathlib import Path
from typing import Annotated

import typer

MODEL = "data/choice"


def log_here() -> None:
    """Shows the log on the terminal."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("faiss").setLevel(logging.WARNING)  # which of its builds it found


def require_model(folder: Path) -> Path:
    """The model folder; ValueError names what is meant where it is a profile, or the project's own, which has none."""
    places = [folder / MODEL, Path("profiles") / folder / MODEL]
    if folder == Path(MODEL):
        places = sorted(Path().glob(f"profiles/*/{MODEL}"))
    others = [str(place) for place in places if (place / "config.json").exists()]
    if others and not (folder / "config.json").exists():
        raise ValueError(f"{folder} holds no model; name one that is here: {', '.join(others)}")
    return folder


def profile_here(profile: str | None) -> str | None:
    """The profile that is named, else the one in whose folder the command is typed, else the user's only one.

    None, as for "": the project's own graph, which also stays the one without a profile once it has run.
    """
    from pipeline import project

    root, here = project(), Path.cwd()
    if profile is not None or root is None:
        return profile or None
    if (root / "profiles") in here.parents:
        return here.relative_to(root / "profiles").parts[0]
    own = [file.parent.name for file in root.glob("profiles/*/values.yaml")]
    if len(own) != 1 or (root / "dvc.lock").exists():
        return None
    typer.echo(f"of the only profile here, --profile {own[0]} (the project's own graph: --profile '')", err=True)
    return own[0]


Folder = typer.Argument(metavar="[FOLDER]", help="a model folder, such as profiles/shoes/data/choice")
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=profile_here,
        help="the graph of profiles/NAME; without it that of the profile's folder you are in, or of your only profile "
        "until the project's own has run; '': the project's own",
    ),
]
Stages = Annotated[
    list[str] | None, typer.Argument(metavar="STAGE", help="only these and what they read; without any, all")
]
Remote = Annotated[
    str | None,
    typer.Option(metavar="URL", help="a folder, ssh://user@host/path or s3://bucket/prefix; kept once it is given"),
]
Jobs = Annotated[int | None, typer.Option(min=1, metavar="N", help="stages at once; without it, as many as fit here")]
