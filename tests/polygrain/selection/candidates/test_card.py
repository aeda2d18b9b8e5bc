import pytest

from polygrain.encoder.config import AdaptorConfig
from polygrain.selection.candidates.card import text
from tests.helpers.small import CONFIG

CHOICE = {"name": "average, at 1.5 times the side", "why": ["It is the best.", "No other is."]}
CHOICE["learnt"] = {"tasks": ["dots", "bars"], "images": 4800}
ADAPTED = CONFIG.model_copy(
    update={
        "adaptors": AdaptorConfig(names=["k4", "k8"], width=8, fusion="average"),
        "reduced": 16,
        "scaled": 48,
    }
)


@pytest.mark.parametrize(
    ("config", "form", "facts"),
    [
        (
            ADAPTED,
            {"scale": 1.5, "layer": "clusters"},
            ["scaled to 48 px", "Adaptors: k4, k8\n", "in closed form from clusters", "Cost: 2.25 ", "16 numbers"],
        ),
        (CONFIG, {"scale": 1.0, "layer": "none"}, ["Adaptors: none", "Last layer: none", "Cost: 1 "]),
    ],
)
def test_text__says_what_the_model_is_and_why(config, form, facts):
    card = text(config, CHOICE | {"form": form})
    common = ["# average, at 1.5 times the side", "4,800 images of dots, bars", "- It is the best.\n- No other is.\n"]
    for fact in [*facts, *common]:
        assert fact in card
    assert "None" not in card


def test_text__one_image_is_not_plural():
    card = text(CONFIG, CHOICE | {"form": {"scale": 1.0, "layer": "none"}, "learnt": {"tasks": ["dots"], "images": 1}})
    assert "1 image of dots" in card and "(s)" not in card and "(es)" not in card
