"""`polygrain search`: the images of a folder that are most like a query, in the terminal or on a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polygrain.cli.options import MODEL, log_here, require_model
from polygrain.compute.counted import counted

if TYPE_CHECKING:
    from polygrain.app.page.sides import Side
    from polygrain.collection.collection import Collection


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
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where the images of FILE are now, if they have moved")
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
    """Show the images that are most like each query.

    The scores are the cosines of their embeddings. Where the images are smoothed by their neighbours, so is the search.

    A folder is embedded first, into your cache folder (~/.cache/polygrain); the next search takes it from there.

    Example: polygrain search query.jpg --in my/images

    Example: polygrain search --duplicates pairs.csv --in my/images

    Example: polygrain search --page --in embeddings.parquet
    """
    log_here()
    if bool(query) + page + bool(duplicates) != 1:
        raise ValueError("give image files to search for, or --page to search in the browser, or --duplicates")
    if page:
        from polygrain.app.page import server

        listening = server.listen(port)  # before the work that may take long
        server.run(listening, sides_of(opened(source, model, root), k, smooth, beside), above)
    elif duplicates:
        write_duplicates(duplicates, above, opened(source, model, root))
    else:
        print_nearest(query or [], opened(source, model, root, query or []), k or 10, smooth)


def opened(source: Path, model: Path | None, root: Path | None, queries: Sequence[Path] = ()) -> "Collection":
    """The collection in a file; a folder or CSV is embedded first, where that is not in the cache.

    `queries` are embedded before it, so that one that cannot be read is told at once.
    """
    from polygrain.collection.collection import Collection
    from polygrain.collection.listing import find
    from polygrain.collection.maker import Maker
    from polygrain.store.tables import is_parquet

    if is_parquet(source) or not source.exists():
        return Collection.open(source, model, root)
    if root is not None:
        raise ValueError(
            f"--root is for a file, and {source} is a folder of images or a CSV: name where they are with --in"
        )
    maker, images = Maker(require_model(model or Path(MODEL))), find(source)
    for query in queries:
        maker.embed(query)
    found = Collection.of(images, maker)
    if left := found.left_out:
        entries = counted(len(left), "entry", "entries")
        typer.echo(f"{entries} of {source} left out: {found.left_out_file} has the reasons", err=True)
    return found


def write_duplicates(output: Path, above: float, collection: "Collection") -> None:
    from polygrain.collection.duplicates import MOST
    from polygrain.store.tables import write_csv

    paths, pairs, odd = collection.paths, collection.near_duplicates(above), collection.odd()
    named = [(one.kind, one.cosine, paths[one.image], paths[one.other]) for one in pairs + odd]
    write_csv(output, [("kind", "cosine", "path", "other"), *named])
    more, closest = " and more" if len(pairs) >= MOST else "", collection.graph.closest
    said = f" (the closest two have {closest:.3f})" if closest is not None and not pairs else ""
    found = f"{counted(len(pairs), 'pair')}{more} from a cosine of {above:g}{said}"
    typer.echo(f"{output}: {found}, {counted(len(odd), 'odd image')}")


def print_nearest(queries: list[Path], collection: "Collection", k: int, smooth: bool) -> None:
    if smooth and collection.is_smoothed:
        typer.echo(f"{counted(len(collection), 'image')}, {collection.comparison} (--no-smooth: plain)", err=True)
    for file, hits in zip(queries, collection.search(queries, k, smooth), strict=True):
        typer.echo(f"{file}\nrank   score  path" if len(queries) > 1 else "rank   score  path")
        for rank, hit in enumerate(hits, 1):
            typer.echo(f"{rank:>4}  {hit.score:6.3f}  {shown(hit.path)}")


def sides_of(collection: "Collection", k: int | None, smooth: bool, beside: Path | None) -> "list[Side]":
    """The collection; before it the same images by another model, or plain by the encoder that it was made of."""
    from polygrain.app.page.sides import FIRST_SHOWN, MOST_SHOWN, Side
    from polygrain.collection.maker import Maker

    def name_of(maker: Maker) -> str:
        is_choice = maker.folder and (maker.folder / "choice.json").exists()
        name = (maker.home or Path("model")).resolve().name
        return "recommended model" if is_choice else name.replace("without_training", "model without training")

    sides = [
        Side(name_of(collection.maker), str(collection.maker), collection, smooth, min(k or FIRST_SHOWN, MOST_SHOWN))
    ]
    if beside:
        other = Maker(beside)
        name = name_of(other) if name_of(other) != sides[0].name else str(beside)
        sides.insert(0, Side(name, str(beside), collection.by(other, smooth=True), smooth))
    elif encoder := collection.maker.encoder():
        # Centred, as the model's rows are.
        sides.insert(0, Side("encoder", "alone, with the model's input", collection.by(encoder), smooth))
    return sides


def shown(path: str) -> str:
    """A path as a terminal may show it: a name may hold letters that move the cursor."""
    return path if path.isprintable() else repr(path)
