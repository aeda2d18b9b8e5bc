"""`polygrain embed`: embeddings of a folder's images, as a file."""

from pathlib import Path
from typing import Annotated

import typer

from polygrain.cli.options import MODEL, log_here, require_model
from polygrain.compute.counted import counted


def embed(
    source: Annotated[Path, typer.Argument(metavar="DIR|CSV", help="a folder of images, or a CSV with a column path")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="the .parquet to write")],
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="a model folder")] = Path(MODEL),
    smooth: Annotated[bool, typer.Option("--smooth/--no-smooth", help="smooth the rows, where that helps")] = True,
    alike: Annotated[
        int | None, typer.Option(min=2, help="about how many images show the same thing: 6 of a product, 300 of a kind")
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="compare the images as this task of the model, wherever they are")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--choose", help="choose mean, smoothing and task anew, not as in an earlier file")
    ] = False,
    batch: Annotated[int, typer.Option(min=1, max=4096, help="images that go through the model at once")] = 64,
) -> None:
    """Write the embeddings of all images of a folder.

    The images may lie in folders of any depth, or a CSV names them. The file has the columns path and searched:
    embeddings, centred, and smoothed (diffusion on a neighbour graph) where that is chosen. Then plain has them
    unsmoothed. What cannot be read is listed beside it, with the reason. The next call embeds what is new or
    changed, and one that was interrupted goes on where it was.

    Example: polygrain embed my/images -o embeddings.parquet --model profiles/shoes/data/choice
    """
    from polygrain.collection.collection import Collection
    from polygrain.collection.maker import Maker

    log_here()
    maker = Maker(require_model(model))
    found = Collection.of(source, maker, file=output, task=task, alike=alike, choose=anew, smooth=smooth, batch=batch)
    typer.echo(f"{output}: {counted(len(found), 'row')} of {found.facts.dim} numbers, by model {maker.digest}")
    if left := found.left_out:
        typer.echo(f"{found.left_out_file}: {counted(len(left), 'entry', 'entries')} left out, with the reasons")
