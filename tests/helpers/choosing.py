"""Models to choose from, and what the stage `choice` reads beside them, on the small world."""

import contextlib

import torch
from timm.layers import PatchEmbed
from torch.nn.modules.module import register_module_forward_hook

from polygrain.encoder.model import load
from polygrain.selection.criterion import draw_clear, embed_carefully
from polygrain.selection.seen import Seen
from polygrain.store.image_table import open_pixels, read_tables
from stages import choice, evaluation, resolution
from tests.helpers.settings import comparing
from tests.helpers.small import TASKS, adapted, cluster, lists, run_features, write_encoder, write_model


def params(**changes):
    return choice.Params(**comparing(**changes))


EVALUATION = evaluation.Params(whitened_dim=8)
QUICK = {"layer": "none", "blocks": 1}


def write_models(folder, std=0.1, side=48):
    """The folders of all models, as their stages leave them; the more `std`, the less is left of the encoder."""
    write_encoder(folder / "encoder")
    encoder = write_model(load(folder / "encoder").at_side(side, False), folder / "resolution")
    for seed, name in enumerate(("k4", "k8")):
        write_model(adapted(encoder, [name], seed, std), folder / "adaptor" / name)
    for seed, name in enumerate(("average", "augmentation", "neighbour")):
        fusion = "average" if name == "average" else "attention"
        write_model(adapted(encoder, ["k4", "k8"], seed, std, fusion), folder / "fusion" / name)
    reduced, generator = adapted(encoder, ["reduced"], 5, std), torch.Generator().manual_seed(6)
    reduced.reduce(torch.randn(6, 24, generator=generator), torch.randn(6, generator=generator))
    write_model(reduced, folder / "reduced")
    return [folder / name for name in ("encoder", "resolution", "adaptor", "fusion")]


def see(images, models, folder, settings):
    """All folders that the stage reads, with what `resolution` saw and `features` stored."""
    encoder, start = load(models[0]), load(models[1])
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    sample, views, looks = draw_clear(collection, encoder, pixels, settings.criterion, 0), {}, None
    if len(sample.rows):
        tried = [encoder.config.side, start.config.side]
        views = resolution.see(encoder, pixels, sample, tried, settings.criterion, settings.blocks)
        looks = embed_carefully(start, pixels, sample.rows, settings.reference, 16, "float32", "")
    (folder / "views").mkdir(parents=True)
    Seen(sample, views, looks).write(folder / "views")
    (folder / "views/recall.csv").write_text("side,cost,recall,chosen\n48,1,0.5,1\n")
    run_features(folder / "features", images, models[1], settings.blocks)
    clusters = [folder / name for name in ("seeds", "pseudo_labels", "scatter")]
    if settings.layer != "none":
        clusters = cluster(folder, images, folder / "features", lists(), settings.blocks)
    return choice.Reads(images, *models[:2], folder / "views", folder / "features", *clusters, *models[2:])


@contextlib.contextmanager
def counted():
    """The passes of a network's first layer within the block, an entry for each."""
    passes = []

    def count(module, *_):
        if isinstance(module, PatchEmbed):
            passes.append(module)

    hook = register_module_forward_hook(count)
    yield passes
    hook.remove()
