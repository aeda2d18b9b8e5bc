"""`polygrain search`: the images of a folder that are most like a query, in the terminal or on a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polygrain.cli.options import MODEL, require_model

if TYPE_CHECKING:
    from polygrain.encoder.model import Model

# What each way to search takes of the options that are not for all.
TAKEN = {
    "--page": {"-k", "--smooth", "--above", "--beside", "--port"},
    "--duplicates": {"--above"},
    "image files": {"-k", "--smooth"},
}


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
        bool | None,
        typer.Option("--smooth/--no-smooth", help="search the smoothed rows, where there are any, or the plain ones"),
    ] = None,
    duplicates: Annotated[
        Path | None, typer.Option(metavar="CSV", help="write pairs of near-duplicates, and images like no other")
    ] = None,
    above: Annotated[
        float | None, typer.Option(min=-1, max=1, help="cosine from which a pair is a near-duplicate: 0.95")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="search in the browser")] = False,
    beside: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="another model folder, such as data/encoder, shown beside it on the page"),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="of the page, on this machine: 4300; 0 takes a free one")
    ] = None,
) -> None:
    """Show the images that are most like each query, with the cosines of their embeddings.

    Where the images are smoothed by their neighbours, so is the search.

    A folder is embedded first, into your cache folder (~/.cache/polygrain); the next search takes it from there.

    Example: polygrain search query.jpg --in my/images

    Example: polygrain search --duplicates pairs.csv --in my/images

    Example: polygrain search --page --in embeddings.parquet
    """
    import logging
    from functools import partial

    from polygrain.app import duplicates as alike
    from polygrain.app import embedding
    from polygrain.app.gallery import model_of, read_of, require_made
    from polygrain.app.page.sides import MOST_SHOWN
    from polygrain.compute import device
    from polygrain.encoder import load
    from polygrain.encoder.digest import digest
    from polygrain.runner.progress import progress
    from polygrain.store import embeddings as stored
    from polygrain.store.tables import write_csv

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("faiss").setLevel(logging.WARNING)  # which of its builds it found
    if bool(query) + page + bool(duplicates) != 1:
        raise ValueError("give image files to search for, or --page to search in the browser, or --duplicates")
    door = "--page" if page else "--duplicates" if duplicates else "image files"
    given: dict[str, object] = {"-k": k, "--above": above, "--beside": beside, "--port": port}
    given["--smooth"] = smooth or None  # duplicates are of plain rows anyway
    if wrong := [option for option, value in given.items() if value is not None and option not in TAKEN[door]]:
        raise ValueError(f"{wrong[0]} changes nothing beside {door}: leave it out")
    if page and (k or 0) > MOST_SHOWN:
        raise ValueError(f"-k is {k}, but the page shows {MOST_SHOWN} images at most")
    smooth, above = smooth is not False, 0.95 if above is None else above
    query, model = query or [], require_model(model_of(source, model))
    network, name = load(model).to(device.best()), digest(model)
    if duplicates:
        file = file_of(source, network, name, model)
        table = stored.read(file)
        require_made(file, table.model, table.root, name, model)
        graph = alike.graph_of(table.vectors, partial(progress, description="neighbours", unit="part"))
        pairs, odd = alike.duplicates(table.vectors, graph, above), alike.odd(graph)
        named = [(row.kind, row.cosine, table.paths[row.image], table.paths[row.other]) for row in pairs + odd]
        write_csv(duplicates, [("kind", "cosine", "path", "other"), *named])
        more = " and more" if len(pairs) >= alike.MOST else ""
        closest = f" (the closest two have {graph.closest:.3f})" if graph.closest is not None and not pairs else ""
        typer.echo(
            f"{duplicates}: {len(pairs):,} pairs{more} from a cosine of {above:g}{closest}, {len(odd):,} odd images"
        )
        return
    if not page:
        vectors, file = embedding.embed(network, query), file_of(source, network, name, model)
        gallery = read_of(file, name, model, smooth)
        if gallery.comparison.share:
            typer.echo(f"{len(gallery):,} images, {gallery.comparison} (--no-smooth: plain)", err=True)
        for file, scores, rows in zip(query, *gallery.search(gallery.comparison.query(vectors), k or 10), strict=True):
            typer.echo(f"{file}\nrank   score  path" if len(query) > 1 else "rank   score  path")
            for rank, (score, row) in enumerate(zip(scores, rows, strict=True), 1):
                typer.echo(f"{rank:>4}  {score:6.3f}  {shown(gallery.paths[row])}")
        return
    from polygrain.app import knob
    from polygrain.app.page import server
    from polygrain.app.page.sides import SHOWN, Side, encoder_of, same_images
    from polygrain.app.squares import images_of

    other = load(beside).to(device.best()) if beside else encoder_of(network)
    # Before the work that may take long.
    listening = server.listen(4300 if port is None else port)
    file = file_of(source, network, name, model)
    own = knob.of_file(file, name, model, smooth)
    images = images_of(file, own.plain.root, own.plain.paths)
    sides = [Side("model", str(model), network, own, k or SHOWN, images)]
    if other is not None:
        # The encoder is plain, less its own mean as the model's rows are; another model as it would be used.
        label, what, key = "encoder", "alone, with the model's input", f"{name}-encoder"
        if beside:
            label, what, key = beside.name, str(beside), digest(beside)
        how = (bool(beside), not smooth, images, beside)
        sides.insert(0, Side(label, what, other, same_images(own.plain, other, key, *how)))
    server.run(listening, sides, above)


def file_of(source: Path, network: "Model", name: str, folder: Path) -> Path:
    """A file of embeddings; a folder or CSV is embedded first, into the cache, where it is not there."""
    import pyarrow.parquet as pq

    from polygrain.app import cache, embedding
    from polygrain.app.listing import find

    if source.suffix == ".parquet":
        return source
    listing, file = find(source), cache.place(source, name)
    embedding.write(network, name, listing, file, smooth=True, folder=folder)
    if left := len(listing.paths) + len(listing.rejected) - pq.read_metadata(file).num_rows:
        typer.echo(f"{left:,} entries of {source} are left out: {embedding.rejected_file(file)} lists them", err=True)
    return file


def shown(path: str) -> str:
    """A path as a terminal may show it: a name may hold letters that move the cursor."""
    return path if path.isprintable() else repr(path)
