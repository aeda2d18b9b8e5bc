from polygrain.encoder.config import AdaptorConfig
from polygrain.selection.candidates.card import text
from tests.helpers.small import CONFIG

SAID = {
    "name": "average x 0.5",
    "form": {"strength": 0.5, "layer": "half", "cost": 4.5},
    "why": ["It is the best.", "No other is."],
}


def test_text__says_what_the_model_is_and_why():
    adaptors = AdaptorConfig(names=["k4", "k8"], width=8, fusion="average")
    config = CONFIG.model_copy(update={"adaptors": adaptors, "reduced": 16, "scaled": 48, "mirrored": True})
    found = text(config, SAID, ["dots", "bars"], 4800)
    for line in (
        "# average x 0.5",
        "32 x 32 px (the centre of a square of 32 px), scaled to 48 px for the network, averaged with its mirror image",
        "- Adaptors: k4, k8, at 0.5 of their strength",
        "- Last layer: half whitening",
        "- Cost: 4.5 pass(es)",
        "4,800 images of dots, bars, without labels",
        "- It is the best.\n- No other is.\n",
        "an image in, 16 numbers",
    ):
        assert line in found
    assert "None" not in found


def test_text__of_the_encoder_as_it_is():
    found = text(CONFIG, SAID | {"form": {"strength": 1.0, "layer": "none", "cost": 1.0}}, ["dots"], 5)
    assert "- Adaptors: none\n- Last layer: none\n- Cost: 1 pass(es)" in found and "None" not in found
