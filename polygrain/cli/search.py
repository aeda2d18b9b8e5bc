"""`polygrain search`: the images of a folder that are most like a query, in the terminal or on a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polygrain.cli.options import MODEL, log_here, require_model

if TYPE_CHECKING:
    from polygrain.encoder.model import Model


def search(
    query: Annotated[list[Path] | None, typer.Argument(metavar="QUERY", help="image files")] = None,
    *,
    source: Annotated[
        Path, typer.Option("--in", metavar="DIR|FILE", help="a folder of images, or what `polygrain embed` wrote")
    ],
    model: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help=f"a model folder; without it the one that made FILE, or {MODEL}"),
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", min=1, max=1000, help="images shown for each query: 10, on the page 24")
    ] = None,
    smooth: Annotated[
        bool,
        typer.Option("--smooth/--no-smooth", help="search the smoothed rows, where there are any, or the plain ones"),
    ] = True,
    duplicates: Annotated[
        Path | None, typer.Option(metavar="CSV", help="write pairs of near-duplicates, and images like no other")
    ] = None,
    above: Annotated[float, typer.Option(min=-1, max=1, help="cosine from which a pair is a near-duplicate")] = 0.95,
    page: Annotated[bool, typer.Option("--page", help="search in the browser")] = False,
    beside: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="another model folder, such as data/encoder, shown beside it on the page"),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="of the page, on this machine; 0 takes a free one")
    ] = 4300,
) -> None:
    """Show the images that are most like each query, with the cosines of their embeddings.

    Where the images are smoothed by their neighbours, so is the search.

    A folder is embedded first, into your cache folder (~/.cache/polygrain); the next search takes it from there.

    Example: polygrain search query.jpg --in my/images

    Example: polygrain search --duplicates pairs.csv --in my/images

    Example: polygrain search --page --in embeddings.parquet
    """
    from polygrain.collection.collection import model_of
    from polygrain.compute import device
    from polygrain.encoder import load

    log_here()
    if bool(query) + page + bool(duplicates) != 1:
        raise ValueError("give image files to search for, or --page to search in the browser, or --duplicates")
    model = require_model(model_of(source, model))
    network = load(model).to(device.best())
    if duplicates:
        write_duplicates(duplicates, above, source, network, model)
    elif page:
        serve_page(source, network, model, k, smooth, above, beside, port)
    else:
        print_nearest(query or [], source, network, model, k or 10, smooth)


def write_duplicates(output: Path, above: float, source: Path, network: "Model", model: Path) -> None:
    from functools import partial

    from polygrain.collection import duplicates
    from polygrain.collection import file as embeddings
    from polygrain.collection.collection import require_made
    from polygrain.encoder.digest import digest
    from polygrain.runner.progress import progress
    from polygrain.store.tables import write_csv

    name = digest(model)
    table = embeddings.read(file_of(source, network, name, model))
    require_made(source, table.model, table.root, name, model)
    graph = duplicates.graph_of(table.vectors, partial(progress, description="neighbours", unit="part"))
    pairs, odd = duplicates.duplicates(table.vectors, graph, above), duplicates.odd(graph)
    named = [(row.kind, row.cosine, table.paths[row.image], table.paths[row.other]) for row in pairs + odd]
    write_csv(output, [("kind", "cosine", "path", "other"), *named])
    more = " and more" if len(pairs) >= duplicates.MOST else ""
    closest = f" (the closest two have {graph.closest:.3f})" if graph.closest is not None and not pairs else ""
    typer.echo(f"{output}: {len(pairs):,} pairs{more} from a cosine of {above:g}{closest}, {len(odd):,} odd images")


def print_nearest(queries: list[Path], source: Path, network: "Model", model: Path, k: int, smooth: bool) -> None:
    import numpy as np

    from polygrain.collection import embedding
    from polygrain.collection.collection import read_of
    from polygrain.encoder.digest import digest

    name, vectors = digest(model), np.concatenate([embedding.embed(network, query) for query in queries])
    gallery = read_of(file_of(source, network, name, model), name, model, smooth)
    if not gallery.comparison.is_plain:
        typer.echo(f"{len(gallery):,} images, {gallery.comparison} (--no-smooth: plain)", err=True)
    for file, scores, rows in zip(queries, *gallery.search(gallery.comparison.query(vectors), k), strict=True):
        typer.echo(f"{file}\nrank   score  path" if len(queries) > 1 else "rank   score  path")
        for rank, (score, row) in enumerate(zip(scores, rows, strict=True), 1):
            typer.echo(f"{rank:>4}  {score:6.3f}  {shown(gallery.paths[row])}")


def serve_page(
    source: Path,
    network: "Model",
    model: Path,
    k: int | None,
    smooth: bool,
    above: float,
    beside: Path | None,
    port: int,
) -> None:
    from polygrain.app.page import server
    from polygrain.app.page.sides import MOST_SHOWN, SHOWN, Side, encoder_of, same_images
    from polygrain.collection.collection import read_of
    from polygrain.collection.stored import images_of
    from polygrain.compute import device
    from polygrain.encoder import load
    from polygrain.encoder.digest import digest

    name, other = digest(model), load(beside).to(device.best()) if beside else encoder_of(network)
    # Before the work that may take long.
    listening = server.listen(port)
    file = file_of(source, network, name, model)
    own = read_of(file, name, model, smooth=False)
    images = images_of(file, own.root, own.paths)
    sides = [Side("model", str(model), network, own, file, smooth, min(k or SHOWN, MOST_SHOWN), images)]
    if other is not None:
        # The encoder is plain, less its own mean as the model's rows are; another model as it would be used.
        label, what, key = "encoder", "alone, with the model's input", f"{name}-encoder"
        if beside:
            label, what, key = beside.name, str(beside), digest(beside)
        same = same_images(own, other, key, bool(beside), images, beside)
        sides.insert(0, Side(label, what, other, *same, smooth))
    server.run(listening, sides, above)


def file_of(source: Path, network: "Model", name: str, folder: Path) -> Path:
    """A file of embeddings; a folder or CSV is embedded first, into the cache, where it is not there."""
    import pyarrow.parquet as pq

    from polygrain.collection import cache, embedding
    from polygrain.collection.listing import find
    from polygrain.store.tables import is_parquet

    if is_parquet(source):
        return source
    listing, file = find(source), cache.place(source, name)
    embedding.write(network, name, listing, file, smooth=True, folder=folder)
    if left := len(listing.paths) + len(listing.rejected) - pq.read_metadata(file).num_rows:
        typer.echo(f"{left:,} entries of {source} are left out: {embedding.rejected_file(file)} lists them", err=True)
    return file


def shown(path: str) -> str:
    """A path as a terminal may show it: a name may hold letters that move the cursor."""
    return path if path.isprintable() else repr(path)
