from polygrain.config.items.mpcl import Pretraining
from polygrain.mpcl.report.published import Setting, matches, published_rows
from tests.test_mpcl_encoder import pretraining


def test_matches__the_very_run_and_none_of_another_length() -> None:
    run = Pretraining(**pretraining(heads=1, framework="moco_v2", contrast=0, balance="none"))
    settings = [Setting(["imagenet100"], "resnet50", epochs, 128) for epochs in (200, 100)]
    assert [sum(matches(row, run, setting) for row in published_rows()) for setting in settings] == [6, 0]
