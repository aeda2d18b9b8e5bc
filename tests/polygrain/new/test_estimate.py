import csv
import re
from pathlib import Path

import pytest

from polygrain.new import estimate
from polygrain.new.encoder import STORED, Request, installed
from polygrain.new.profile import EncoderSettings, Work
from polygrain.sources.look import Sizes

LITE0 = EncoderSettings({"architecture": "tf_efficientnet_lite0.in1k"}, 224, 224, 1)


def told(request: Request, settings: EncoderSettings, hours: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where the run takes so long for each pass of the model."""
    monkeypatch.setattr(installed, "file_of", lambda name: Path("w.pth"))
    return list(estimate.ways(request, settings, 1.0, lambda each, cost: 3600.0 * hours * each * cost))


@pytest.mark.parametrize("shorter", [None, 160])
def test_ways__quick_default_and_best_take_more_and_find_more(monkeypatch, shorter):
    default, quick, best = told(
        Request(shorter=shorter), LITE0._replace(side=160 if shorter else 224), 0.4, monkeypatch
    )
    assert quick.startswith("--side 96: ") and best.startswith("--encoder lite2: ")
    minutes = [int(re.search(r"about (\d+) minutes", line)[1]) for line in (quick, best)]
    assert minutes == sorted(minutes)
    right = [int(found[1]) for line in (quick, default, best) if (found := re.search(r"(\d+) of 100", line))]
    assert right == sorted(right) and len(right) >= 2


def test_ways__what_takes_half_an_hour_is_said_with_the_quicker_one(monkeypatch):
    quicker = 60 * 2 * STORED**2 * (96 / 224) ** 2
    assert f"--side 96: about {quicker:.0f} minutes" in told(Request(side=224), LITE0, 2, monkeypatch)[-1]
    named = EncoderSettings({"architecture": "vit_small_patch14_reg4_dinov2.lvd142m"}, 518, 518, 1)
    assert "--side 112: " in told(Request("vit_small_patch14_reg4_dinov2"), named, 9, monkeypatch)[0]
    for settings in (named._replace(side=112), EncoderSettings()):
        assert told(Request("no lite"), settings, 9, monkeypatch) == []


def test_measured__as_in_the_results():
    with (Path(__file__).parents[3] / "docs/results/ladder.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == "mean"]
    found = {(row["set"], row["encoder"], int(row["side"])): float(row["smoothed"]) for row in rows}
    for images, networks in estimate.MEASURED.items():
        for name, sides in networks.items():
            assert all(right == round(found[images, name, side]) for side, right in sides.items())


def test_passes__more_work_takes_longer_and_training_longest():
    few = Work(1000, 800, tasks=2, sets=0, sizes=Sizes())
    least = estimate.passes(few, 1.0)
    # Each image is embedded once as it is, and once at the chosen side if that is another.
    assert estimate.passes(few._replace(images=1001), 1.0) - least == 1
    assert estimate.passes(few._replace(images=1001), 2.25) - estimate.passes(few, 2.25) == 3.25
    assert all(estimate.passes(few._replace(**more), 1.0) > least for more in ({"tasks": 3, "train": 900}, {"sets": 1}))
    assert estimate.passes(few, 2.25) > least and estimate.passes(few._replace(sets=3), 1.0) > 5 * least
