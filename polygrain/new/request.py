"""The user's words about an encoder, checked before torch is loaded."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


class Request(NamedTuple):
    """The words about the encoder; None for those that were not given."""

    name: str | None = None
    """a timm name, a file or a folder"""
    architecture: str | None = None
    side: int | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    kwargs: Mapping[str, int | float | bool | str] = {}
    shorter: int | None = None
    """of the images, not of the encoder: their shorter side, px; None where it is not known"""

    def require_sense(self) -> None:
        """ValueError for words about an encoder that is not named, but its side, and for a file that is not there."""
        if self.name is not None:
            return require_there(self.name)
        if given := [name for name, value in self._replace(side=None)._asdict().items() if value]:
            raise ValueError(f"--{given[0]} is about another encoder: name it with --encoder")


def bare(name: str) -> str:
    """A timm name without its address on the hub (`timm/NAME`, `hf-hub:timm/NAME`); what is there stays as it is."""
    return name if Path(name).exists() else re.sub(r"^(https://huggingface\.co/|hf[-_]hub:)?timm/", "", name)


def require_there(name: str) -> None:
    """ValueError for the name of a file or folder that does not exist."""
    name = bare(name)
    if (os.sep in name or Path(name).suffix in WEIGHTS) and not Path(name).exists():
        raise ValueError(f"{name} does not exist: give a file, a folder or a timm name")
