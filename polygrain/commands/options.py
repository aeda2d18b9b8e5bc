"""Words that several commands take."""

import typer

MODEL = "data/choice"
Folder = typer.Argument(metavar="[FOLDER]", help="a model folder, such as profiles/shoes/data/choice")
