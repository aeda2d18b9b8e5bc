from polygrain.new import estimate


def test_passes__more_work_takes_longer_and_training_longest():
    few = {"images": 1000, "train": 800, "tasks": 2, "ks": 0, "cost": 1.0, "epochs": 6}
    least = estimate.passes(**few)
    # Each image is embedded once as it is, and once at the chosen side if that is another.
    assert estimate.passes(**few | {"images": 1001}) - least == 1
    twice = few | {"cost": 2.25}
    assert estimate.passes(**twice | {"images": 1001}) - estimate.passes(**twice) == 3.25
    more = ({"tasks": 3, "train": 900}, {"cost": 2.25}, {"ks": 1})
    assert all(estimate.passes(**few | one) > least for one in more)
    trained = estimate.passes(**few | {"ks": 3})
    assert trained > 5 * least and estimate.passes(**few | {"ks": 3, "epochs": 9}) > trained
