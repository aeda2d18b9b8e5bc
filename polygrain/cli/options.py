"""Words that several commands take."""

from typing import Annotated

import typer

MODEL = "data/choice"
Folder = typer.Argument(metavar="[FOLDER]", help="a model folder, such as profiles/shoes/data/choice")
Profile = Annotated[
    str | None, typer.Option(metavar="NAME", help="the graph of profiles/NAME; without it the project's own")
]
Stages = Annotated[
    list[str] | None, typer.Argument(metavar="STAGE", help="only these and what they read; without any, all")
]
Remote = Annotated[
    str | None,
    typer.Option(metavar="URL", help="a folder, ssh://user@host/path or s3://bucket/prefix; kept once it is given"),
]
KeepListings = Annotated[
    bool, typer.Option("--keep-listings", help="ask no object store, and run with the last listing of each")
]
Jobs = Annotated[int | None, typer.Option(min=1, metavar="N", help="stages at once; without it, as many as fit here")]
