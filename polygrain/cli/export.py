"""`polygrain export`: a model as files that need nothing of this project."""

from pathlib import Path
from typing import Annotated

import typer

from polygrain.cli.options import MODEL, Folder, require_model

Output = typer.Option("--output", "-o", metavar="FOLDER", help="where the files go; an earlier export is replaced")
Uint8 = typer.Option("--uint8", help="take images as uint8, 0 to 255, instead of float32 in 0..1")
Task = typer.Option("--task", metavar="NAME", help="subtract the mean of this task, not the average of all tasks")


def export(
    folder: Annotated[Path, Folder] = Path(MODEL),
    output: Annotated[Path, Output] = Path("exported"),
    uint8: Annotated[bool, Uint8] = False,
    task: Annotated[str | None, Task] = None,
) -> None:
    """Write a model for torch.export and ONNX.

    Each file is compared with the model, and a card says how to load them.

    Example: polygrain export profiles/shoes/data/choice -o exported
    """
    from polygrain.app.export.folder import write

    for written in write(require_model(folder), output, uint8, task):
        size = f"{written.size / 1e6:,.1f} MB"
        typer.echo(f"{written.name:<11}{size:>12}, differs from the model by at most {written.difference:.1e}")
    typer.echo(f"{output / 'README.md'} says how to load them")
