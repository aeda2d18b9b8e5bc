from polygrain.config.lists import Pretraining
from polygrain.mpcl.report.published import Setting, matches, published_rows
from tests.test_mpcl_encoder import pretraining


def test_matches__the_very_run_and_none_from_other_weights() -> None:
    values = pretraining(heads=1, framework="moco_v2", contrast=0, balance="none")
    one, on = (Pretraining(**values | more) for more in ({}, {"start": "folder", "path": "encoder"}))
    setting = Setting(["imagenet100"], "resnet50", 200, 128)
    assert [sum(matches(row, run, setting) for row in published_rows()) for run in (one, on)] == [6, 0]
