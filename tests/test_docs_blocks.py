"""The blocks of code that README and docs/ mark with `<!-- run -->`, run as they stand in the text."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.model import Model, save
from tests.helpers.docs_text import PAGES, Block, blocks, name
from tests.helpers.project import copy_project


def draw(folder: Path) -> None:
    """Six small pictures of each of two classes."""
    for number in range(12):
        draw_one(folder / f"class{number % 2}" / f"{number}.jpg", number)


def draw_one(file: Path, number: int = 0) -> None:
    pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


def write_model(folder: Path) -> None:
    """A random fused model of two adaptor sets."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    kwargs = {"img_size": 32, "patch_size": 16, "depth": 2, "embed_dim": 24, "num_heads": 2}
    adaptors = AdaptorConfig(names=["k4", "k8"], width=4, fusion="attention")
    grey = (0.5, 0.5, 0.5)
    config = Config(
        architecture="vit_tiny_patch16_224", kwargs=kwargs, size=32, resize=32, mean=grey, std=grey, adaptors=adaptors
    )
    save(Model(config), folder)


def write_vectors(file: Path) -> None:
    """Rows of ten groups, as any encoder may give them."""
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(10, 64)), 20, 0) + 0.5 * rng.normal(size=(200, 64))
    np.save(file, unit_rows(rows.astype(np.float32)))


def marked(page: Path) -> list[Block]:
    """The blocks that are run, those that need what is `above` behind the block before."""
    found: list[Block] = []
    for block in blocks(page):
        if block.needs == "above":
            block = block._replace(code=found[-1].code + block.code, needs=found[-1].needs)
        if block.needs is not None:
            found.append(block)
    return found


RUN = [block for page in PAGES for block in marked(page)]
# A shell block starts the program anew.
CASES = [
    pytest.param(
        block,
        id=f"{name(block.page)}: {block.code.splitlines()[0][:40]}",
        marks=[] if block.kind == "python" else [pytest.mark.slow],
    )
    for block in RUN
]


@pytest.mark.parametrize("block", CASES)
def test_blocks__run_as_they_stand(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, here = tmp_path / "data", tmp_path / "here"
    here.mkdir()
    for need in filter(None, map(str.strip, block.needs.split(";"))):
        what, *places = need.split()
        make = {"images": draw, "image": draw_one, "model": write_model, "vectors": write_vectors}[what]
        for place in places:
            make(outside / place.removeprefix("/data/") if place.startswith("/data/") else here / place)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if block.kind == "python":
        exec(compile(block.code, name(block.page), "exec"), {"__name__": "__main__"})
        return
    copy_project(here)
    code = block.code.replace(".venv/bin/", f"{Path(sys.executable).parent}/").replace("/data/", f"{outside}/")
    # The program of this copy, as its own install would put it first in the path.
    code = f'polygrain() {{ "{sys.executable}" -m polygrain "$@"; }}\n{code}'
    done = subprocess.run(["bash", "-e", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_blocks__most_pages_have_some() -> None:
    """The marks are found at all: README's two, and what the concepts and Start run."""
    assert {name(block.page) for block in RUN} >= {"README.md", "docs/start.md", "docs/concepts/gsp.md"}
