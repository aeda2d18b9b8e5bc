import pytest

from polygrain.encoder.config import AdaptorConfig
from polygrain.selection.candidates.card import text
from tests.helpers.small import CONFIG

CHOICE = {"name": "average x 0.5", "why": ["It is the best.", "No other is."]}
CHOICE["learnt"] = {"tasks": ["dots", "bars"], "images": 4800}
ADAPTED = CONFIG.model_copy(
    update={
        "adaptors": AdaptorConfig(names=["k4", "k8"], width=8, fusion="average"),
        "reduced": 16,
        "scaled": 48,
        "mirrored": True,
    }
)


@pytest.mark.parametrize(
    ("config", "form", "facts"),
    [
        (
            ADAPTED,
            {"strength": 0.5, "layer": "clusters", "cost": 4.5},
            [
                "scaled to 48 px",
                "mirror image",
                "k4, k8, at 0.5",
                "in closed form from clusters",
                "4.5 pass",
                "16 numbers",
            ],
        ),
        (CONFIG, {"strength": 1.0, "layer": "none", "cost": 1.0}, ["Adaptors: none", "Last layer: none", "1 pass"]),
    ],
)
def test_text__says_what_the_model_is_and_why(config, form, facts):
    card = text(config, CHOICE | {"form": form})
    for fact in [*facts, "# average x 0.5", "4,800 images of dots, bars", "- It is the best.\n- No other is.\n"]:
        assert fact in card
    assert "None" not in card
