import pytest
import torch

from polygrain.tll.extractors import published
from polygrain.tll.extractors.layers import Layers

ROWS = {row["name"]: row for row in published.rows()}
# The others are larger relatives of these; building all 33 takes half a minute.
SMALL = ("resnet18", "alexnet", "efficientnet_b0", "deits16", "bit_m_r50x1", "clip_rn50", "clip_vit32_b", "facenet")


def test_rows__are_the_published_table():
    assert len(ROWS) == 37
    assert sum(published.needs_file(name) for name in ROWS) == 4
    best = max(ROWS, key=lambda name: float(ROWS[name]["sigma_15"]))
    assert best == "clip_rn50x4" and ROWS[best]["sigma_15"] == "0.3939"
    factor = float(ROWS[best]["sigma_15"]) / float(ROWS[best]["concatenated"])
    assert factor == pytest.approx(published.FACTORS[1], abs=0.02)
    for row in ROWS.values():
        assert all(0 < float(row[score]) < 0.4 for score in published.SCORES)


def test_by_learning__language_is_best_and_each_extractor_counts_once():
    groups = published.by_learning({"alexnet": 10.0, "resnet18": 20.0})
    assert sum(group["extractors"] for group in groups) == 37 and len(groups) == 8
    assert [(group["studies"], group["ours"]) for group in groups if group["studies"]] == [(2, 15)]
    for score in published.SCORES:
        assert max(groups, key=lambda group: group[score])["learning"] == "natural language supervision"


@pytest.mark.parametrize("name", SMALL)
def test_published__layers_add_up_to_the_published_dimensions(name):
    config = published.published()[name]
    with torch.device("meta"):
        found = Layers(config)(torch.zeros(1, 3, config.side, config.side))
    assert found.shape[1] == int(ROWS[name]["dim"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(published.published()) - set(SMALL)))
def test_published__all_layers_add_up(name):
    test_published__layers_add_up_to_the_published_dimensions(name)
