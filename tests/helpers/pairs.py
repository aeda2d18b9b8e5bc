"""A small world of pairs for the tests of visual analogies: drawn pairs, a random ViT, the stages' data folders."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from polygrain.config.lists import Lists
from polygrain.tll.extractors.config import Extractor
from stages import tll_adaptation, tll_features, tll_pairs, tll_pca
from tests.helpers.small import SIZE, lists, write_encoder

EXTRACTOR = Extractor(
    library="encoder", network=None, kwargs={}, side=None, mean=None, std=None, layers=["blocks.0", "blocks.1"]
)
PAIRS = tll_pairs.Params(side=SIZE, shape="crop")
FEATURES = tll_features.Params(flips=False, extractors={"small": EXTRACTOR})
PCA = tll_pca.Params(components=8, fit="train", runs=3, test_share=0.25)
ADAPTATION = tll_adaptation.Params(
    hidden=12, sigmas=[1.0, 15.0], learning_rate=0.01, steps=6, evaluate_every=2, largest_k=5
)


def study(path: Path, **changes: object) -> Lists:
    values = {"source": "folder", "path": str(path), "listed": None, "extractor": "small", "weights": "data/encoder"}
    return lists(tll={"own": values | changes})


def paint(root: Path, count: int = 24) -> Path:
    """left/ and right/: the right image is the left one in other colours, names in an order unlike the listing's."""
    rng = np.random.default_rng(0)
    for side in ("left", "right"):
        (root / side).mkdir(parents=True)
    for i in range(count):
        pixels = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((SIZE, SIZE), 0).save(root / "left" / f"{i}.png")
        Image.fromarray(255 - pixels[..., ::-1]).resize((SIZE, SIZE), 0).save(
            root / "right" / f"{i}.webp", lossless=True
        )
    return root


def plain_ranks(similarity: torch.Tensor) -> list[int]:
    """The better of each pair's two ranks by sorting, as the published code does; for similarities without ties."""
    ranks = []
    for i in range(len(similarity)):
        forth = torch.argsort(similarity[i], descending=True).tolist().index(i)
        back = torch.argsort(similarity[:, i], descending=True).tolist().index(i)
        ranks.append(1 + min(forth, back))
    return ranks


def plain_recall(similarity: torch.Tensor, ks: Iterable[int]) -> list[float]:
    """aR@k of a left x right matrix, the truth on its diagonal."""
    ranks = np.array(plain_ranks(similarity))
    return [float((ranks <= k).mean()) for k in ks]


def run(data: Path, raw: Path, until: str = "tll_adaptation", extractor: str = "small", **params: object) -> Path:
    """Runs the stages up to `until` on a painted folder; returns the folder of their outputs."""
    lists, names = study(raw, extractor=extractor), ("tll_pairs", "tll_features", "tll_pca", "tll_adaptation")
    pairs, features, pca, adaptation = (data / name / "own" for name in names)
    count = names.index(until) + 1
    tll_pairs.main(raw, pairs, study="own", params=params.get("pairs", PAIRS), lists=lists)
    if count > 1:
        encoder, values = write_encoder(data / "encoder"), params.get("features", FEATURES)
        tll_features.main(pairs, encoder, features, study="own", params=values, lists=lists)
    if count > 2:
        tll_pca.main(features, pca, study="own", params=params.get("pca", PCA), seed=0)
    if count > 3:
        tll_adaptation.main(features, pca, adaptation, study="own", params=ADAPTATION, seed=0, shape="crop")
    return data
