"""`polygrain embed`: embeddings of a folder's images, as a file."""

from pathlib import Path
from typing import Annotated

import typer

from polygrain.cli.options import MODEL, log_here, require_model


def embed(
    source: Annotated[Path, typer.Argument(metavar="DIR|CSV", help="a folder of images, or a CSV with a column path")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="the .parquet to write")],
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="a model folder")] = Path(MODEL),
    smooth: Annotated[
        bool,
        typer.Option("--smooth/--no-smooth", help="write rows smoothed by their neighbours, too, where that helps"),
    ] = True,
    alike: Annotated[
        int | None, typer.Option(min=2, help="about how many images show the same thing: 6 of a product, 300 of a kind")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--choose", help="choose anew how images are compared, not as in an earlier file")
    ] = False,
    batch: Annotated[int, typer.Option(min=1, max=4096, help="images that go through the model at once")] = 64,
) -> None:
    """Write the embeddings of all images of a folder, however deep, or of those that a CSV names.

    The file has the columns path and embedding, less the images' mean, and smoothed, where smoothing by the images' own
    neighbours is chosen.
    What cannot be read is listed beside it, with the reason. The next call embeds what is new or changed, and one that
    was interrupted goes on where it was.

    Example: polygrain embed my/images -o embeddings.parquet --model profiles/shoes/data/choice
    """
    import pyarrow.parquet as pq

    from polygrain.collection.embedding import Wanted, rejected_file, write
    from polygrain.collection.listing import find
    from polygrain.compute import device
    from polygrain.encoder import load
    from polygrain.encoder.digest import digest

    log_here()
    if output.suffix != ".parquet":
        raise ValueError(f"{output} does not end in .parquet")
    if output.is_dir():
        raise ValueError(f"{output} is a folder: name a file")
    if not output.parent.is_dir():
        raise ValueError(f"{output.parent} is not a folder: make it, or choose another")
    network, name = load(require_model(model)), digest(model)
    listing = find(source)
    write(network.to(device.best()), name, listing, output, batch, smooth, Wanted(alike, anew), model)
    rows = pq.read_metadata(output).num_rows
    left = len(listing.paths) + len(listing.rejected) - rows
    typer.echo(f"{output}: {rows:,} embeddings of {network.dim} numbers, by model {name}")
    if left:
        typer.echo(f"{rejected_file(output)}: {left:,} entries that were left out, with the reasons")
