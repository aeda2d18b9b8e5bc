import pytest

from polygrain.app import estimate
from tests.helpers.small import CONFIG


def test_pass_time__times_a_forward_pass():
    assert 0 < estimate.pass_time(CONFIG) < 10


def test_passes__more_work_takes_longer_and_training_longest():
    few = {"images": 1000, "train": 800, "tasks": 2, "ks": 0, "cost": 1.0, "epochs": 6}
    least = estimate.passes(**few)
    # Each image is embedded once as it is and once at the chosen side.
    assert estimate.passes(**few | {"images": 1001}) - least == 2
    more = ({"tasks": 3, "train": 900}, {"cost": 2.25}, {"ks": 1})
    assert all(estimate.passes(**few | one) > least for one in more)
    trained = estimate.passes(**few | {"ks": 3})
    assert trained > 5 * least and estimate.passes(**few | {"ks": 3, "epochs": 9}) > trained


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.0, "about 2 minutes"), (400.0, "about 7 minutes"), (9000.0, "about 2.5 hours")]
)
def test_shown__minutes_or_hours(seconds, words):
    assert estimate.shown(seconds) == words
