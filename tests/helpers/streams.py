"""Tars, Parquet files and an object store of small images, for tests."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def png(number: int, size: tuple[int, int] = (30, 20)) -> bytes:
    """An image of a colour for each number above white."""
    sink = io.BytesIO()
    image = Image.new("RGB", size, (number % 256, number // 256, 255 - number % 256))
    image.paste("white", (0, size[1] * 3 // 4, *size))
    image.save(sink, "png")
    return sink.getvalue()


def tar(file: Path, *members: tuple[str | tarfile.TarInfo, bytes]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name) if isinstance(name, str) else name
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def samples(start: int, stop: int, classes: int = 3) -> list[tuple[str, bytes]]:
    """Images with a label each, as WebDataset has them."""
    parts = [[(f"{i:05d}.png", png(i)), (f"{i:05d}.cls", str(i % classes).encode())] for i in range(start, stop)]
    return [member for part in parts for member in part]


def parquet(
    file: Path, cells: list[bytes | None], labels: list | None = None, names: list[str] | None = None, **options
):
    """Images as Hugging Face lays them; with names its ClassLabel."""
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {"image": pa.array([{"bytes": cell, "path": f"../{i}.png"} for i, cell in enumerate(cells)])}
    if labels is not None:
        columns["label"] = pa.array(labels)
    table = pa.table(columns)
    if names:
        metadata = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    pq.write_table(table, file, **options)
    return file


def colours(pixels: np.ndarray) -> list[int]:
    """The numbers of stored `png` images."""
    return (pixels[:, 0, 0, 0].astype(int) + 256 * pixels[:, 0, 0, 1].astype(int)).tolist()
