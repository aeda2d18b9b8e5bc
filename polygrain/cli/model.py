"""`polygrain model`: the content of a model folder."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from polygrain.cli.options import MODEL, Folder, require_model


def model(
    folder: Annotated[Path, Folder] = Path(MODEL),
    drop: Annotated[str | None, typer.Option(metavar="DIGEST", help="delete this model of an earlier run")] = None,
) -> None:
    """Say what a model folder holds.

    That is its network, its input, the length of an embedding, and its digest. Models that a run has replaced are kept
    for the embeddings that they made, and are listed, too.

    Example: polygrain model profiles/shoes/data/choice

    Example: polygrain model profiles/shoes/data/choice --drop 0123456789abcdef
    """
    from polygrain.encoder import load
    from polygrain.encoder.kept import digest, earlier

    kept = earlier(folder)
    if drop is not None:
        if drop not in kept:
            raise ValueError(f"no model {drop} of an earlier run is kept; there are: {', '.join(kept) or 'none'}")
        shutil.rmtree(kept[drop])
        typer.echo(f"{kept[drop]} is deleted")
        return
    network = load(require_model(folder))
    config = network.config
    lines = {
        "network": f"{config.architecture}, {sum(p.numel() for p in network.parameters()):,} parameters",
        "input": f"the middle {config.size} of a square of {config.resize} px, RGB"
        + (", and of an image that is no square nearly all of it" if config.shape == "whole" else "")
        + (f", scaled to {config.side}" if config.scaled else "")
        + (", averaged with its mirror image" if config.mirrored else ""),
        "adaptors": ", ".join(config.adaptors.names) if config.adaptors else "none",
        "embedding": f"{network.dim} numbers of unit length"
        + (f", of the last {config.blocks} blocks" if config.blocks > 1 else ""),
        "digest": digest(folder),
    }
    lines |= {"earlier": ", ".join(map(str, kept.values()))} if kept else {}
    typer.echo("\n".join(f"{name + ':':<11}{text}" for name, text in lines.items()))
