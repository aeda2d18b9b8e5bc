"""`polygrain smooth`: vectors of any encoder, smoothed by each other."""

from pathlib import Path
from typing import Annotated

import typer

from polygrain.cli.options import log_here


def smooth(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="a .npy or .npz, or a .parquet with vectors")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="the .npy or .parquet to write")],
    alike: Annotated[
        int | None, typer.Option(min=2, help="about how many images show the same thing: 6 of a product, 300 of a kind")
    ] = None,
    paths: Annotated[
        Path | None, typer.Option(metavar="FILE", help="of an array: a text, on each line the path of a row's image")
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="of a table, or of a .npz of several arrays: where its vectors are"),
    ] = None,
) -> None:
    """Learn from vectors of your own how they are compared.

    The vectors may come from CLIP or DINO; afterwards a search finds similar images more often. Their mean is taken
    from them, a layer is learnt from their own clusters, and they are smoothed by each other. A table keeps its
    columns and gets searched, and plain, which is not smoothed. A query goes through the layer that is written
    beside, FILE.layer.npz.

    Example: polygrain smooth clip.npy -o smoothed.npy --alike 6
    """
    from polygrain.collection.vectors import smooth_file

    log_here()
    typer.echo(f"{output}: {len(smooth_file(source, output, alike, column, paths)):,} vectors")
