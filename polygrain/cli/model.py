"""`polygrain model`: what a model folder holds."""

from pathlib import Path
from typing import Annotated

import typer

from polygrain.cli.options import MODEL, Folder, require_model


def model(folder: Annotated[Path, Folder] = Path(MODEL)) -> None:
    """Say what a model folder holds: network, input, length and cost of an embedding, digest.

    Example: polygrain model profiles/shoes/data/choice
    """
    from polygrain.encoder import load
    from polygrain.encoder.digest import digest

    network = load(require_model(folder))
    config = network.config
    lines = {
        "network": f"{config.architecture}, {sum(p.numel() for p in network.parameters()):,} parameters",
        "input": f"the middle {config.size} of a square of {config.resize} px, RGB"
        + (f", scaled to {config.side}" if config.scaled else "")
        + (", averaged with its mirror image" if config.mirrored else ""),
        "adaptors": ", ".join(config.adaptors.names) if config.adaptors else "none",
        "embedding": f"{network.dim} numbers of unit length"
        + (f", of the last {config.blocks} blocks" if config.blocks > 1 else ""),
        "digest": digest(folder),
    }
    typer.echo("\n".join(f"{name + ':':<11}{text}" for name, text in lines.items()))
