"""`polygrain search`: the images of a folder that are most like a query, in the terminal or on a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polygrain.cli.options import MODEL

if TYPE_CHECKING:
    from polygrain.app.gallery import Gallery
    from polygrain.encoder.model import Model


def search(
    query: Annotated[list[Path] | None, typer.Argument(metavar="QUERY", help="image files")] = None,
    source: Annotated[
        Path, typer.Option("--in", metavar="DIR|FILE", help="a folder of images, or what `polygrain embed` wrote")
    ] = ...,
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="a model folder")] = Path(MODEL),
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="images shown for each query")] = 10,
    augment: Annotated[
        bool, typer.Option("--augment", help="mix each image, and the query, with its nearest images first: finds more")
    ] = False,
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

    A folder is embedded first, into your cache folder (~/.cache/polygrain); the next search takes it from there.

    Example: polygrain search query.jpg --in my/images

    Example: polygrain search --page --augment --in embeddings.parquet
    """
    import logging

    from polygrain.app import embedding
    from polygrain.app.digest import digest
    from polygrain.app.gallery import augmented
    from polygrain.compute import device
    from polygrain.encoder import load

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("faiss").setLevel(logging.WARNING)  # which of its builds it found
    if bool(query) == page:
        raise ValueError("give image files to search for, or --page to search in the browser")
    network, name = load(model).to(device.best()), digest(model)
    if not page:
        vectors = embedding.embed(network, query)
        gallery = gallery_of(source, network, name, model)
        gallery = augmented(gallery) if augment else gallery
        for file, scores, rows in zip(query, *gallery.search(gallery.expanded(vectors), k), strict=True):
            typer.echo(f"{file}\nrank   score  path" if len(query) > 1 else "rank   score  path")
            for rank, (score, row) in enumerate(zip(scores, rows, strict=True), 1):
                typer.echo(f"{rank:>4}  {score:6.3f}  {shown(gallery.paths[row])}")
        return
    from polygrain.app.page import server
    from polygrain.app.page.sides import Side, encoder_of, same_images

    # Before the work that may take long.
    listening = server.listen(port)
    other = load(beside).to(device.best()) if beside else encoder_of(network)
    sides = [Side("model", str(model), network, gallery_of(source, network, name, model))]
    if other is not None:
        key = digest(beside) if beside else f"{name}-encoder"
        label, what = (beside.name, str(beside)) if beside else ("encoder", "the model without its adaptors")
        sides.insert(0, Side(label, what, other, same_images(sides[0].gallery, other, key)))
    if augment:
        for side in sides:
            side.gallery = augmented(side.gallery)
    server.run(listening, sides)


def gallery_of(source: Path, network: "Model", name: str, folder: Path) -> "Gallery":
    """The gallery in a file of embeddings; of a folder or CSV, which is embedded first where it is not in the cache."""
    from polygrain.app import cache, embedding, gallery
    from polygrain.app.listing import find

    if source.suffix == ".parquet":
        return gallery.read_of(source, name, folder)
    listing, file = find(source), cache.place(source, name)
    embedding.write(network, name, listing, file)
    result = gallery.read(file)
    if left := len(listing.paths) + len(listing.rejected) - len(result):
        typer.echo(f"{left:,} entries of {source} are left out: {embedding.rejected_file(file)} lists them", err=True)
    return result


def shown(path: str) -> str:
    """A path as a terminal may show it: a name may hold letters that move the cursor."""
    return path if path.isprintable() else repr(path)
