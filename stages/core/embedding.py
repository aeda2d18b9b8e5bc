"""What a trained pooling says of images: embeddings, attributes, and where it looked."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int16, Int64
from safetensors.torch import save_file
from torch.nn import functional

from stages.core import store
from stages.core.embedder import Embedder
from stages.core.maps import Maps
from stages.core.poolings.selection import Selection, costs


@torch.no_grad()
def embed(
    embedder: Embedder, maps: Maps, rows: Int64[np.ndarray, " image"]
) -> tuple[Float32[np.ndarray, "image dim"], Float32[np.ndarray, "image prototype"] | None]:
    """Unit-length embeddings, and attributes where the pooling has them."""
    embedder.eval()
    pooled = [embedder(block) for block in maps.plain(rows)]
    vectors = torch.cat([functional.normalize(part.vector.float(), dim=1) for part in pooled])
    if pooled[0].attributes is None:
        return vectors.cpu().numpy(), None
    return vectors.cpu().numpy(), torch.cat([part.attributes for part in pooled]).float().cpu().numpy()


@torch.no_grad()
def look(
    embedder: Embedder, maps: Maps, rows: Int64[np.ndarray, " image"]
) -> tuple[Float32[np.ndarray, "image y x"], Int16[np.ndarray, "image y x"] | None]:
    """The weight of every place (they sum to 1; all equal for poolings without weights) and its nearest prototype."""
    embedder.eval()
    weights, nearest = [], []
    selection = next((part for part in embedder.modules() if isinstance(part, Selection)), None)
    for block in maps.plain(rows):
        pooled = embedder(block)
        places = block.shape[2] * block.shape[3]
        even = torch.full((len(block), *block.shape[2:]), 1 / places)
        weights.append(even if pooled.weights is None else pooled.weights.float().cpu())
        if selection is not None:
            space = embedder.head.embed(embedder.layer(block))
            distances = costs(space.flatten(2), selection.prototypes)
            nearest.append(distances.argmin(1).view(-1, *block.shape[2:]).short().cpu())
    return torch.cat(weights).numpy(), torch.cat(nearest).numpy() if nearest else None


def write(folder: Path, embedder: Embedder, maps: Maps, rows: np.ndarray) -> None:
    """What the ensemble needs of one fold, and its weights."""
    folder.mkdir()
    tensors = {name: tensor.cpu().contiguous() for name, tensor in sorted(embedder.state_dict().items())}
    save_file(tensors, folder / "weights.safetensors")
    vectors, attributes = embed(embedder, maps, rows)
    store.write(folder / "embeddings.zarr", vectors)
    if attributes is not None:
        store.write(folder / "attributes.zarr", attributes)


def write_pictures(
    folder: Path, embedder: Embedder, maps: Maps, rows: np.ndarray, labels: np.ndarray, count: int
) -> None:
    """Where the pooling looks, in the first image of each of some classes spread over all."""
    firsts = rows[np.unique(labels[rows], return_index=True)[1]]
    shown = firsts[np.unique(np.linspace(0, len(firsts) - 1, min(count, len(firsts))).round().astype(int))]
    weights, nearest = look(embedder, maps, shown)
    tensors = {"rows": torch.from_numpy(shown), "weights": torch.from_numpy(weights)}
    save_file(
        tensors | ({} if nearest is None else {"nearest": torch.from_numpy(nearest)}), folder / "pictures.safetensors"
    )
