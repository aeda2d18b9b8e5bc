import numpy as np
import pytest
import torch

from polygrain.encoder.model import load
from polygrain.store import arrays, work
from stages import adaptor
from tests.helpers.keys import assert_key_follows
from tests.helpers.pretended_gpu import steps_counted
from tests.helpers.settings import VIEWS, classifier, criterion, reference
from tests.helpers.small import lists, write_encoder, write_images


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    (folder / "labels").mkdir()
    arrays.write(folder / "labels/labels.zarr", np.repeat(np.arange(6), 8))
    centroids = np.random.default_rng(0).normal(size=(6, 24)).astype(np.float32)
    arrays.write(folder / "labels/centroids.zarr", centroids)
    return write_images(folder / "images"), write_encoder(folder / "encoder"), folder / "labels"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(world, output, fewest=4, **changes):
    # Copied in, so that a test may go beyond the bounds.
    params = adaptor.Params(width=8, start="centroids", watch="criterion", watched=12, **classifier()).model_copy(
        update=changes
    )
    given = {"settings": criterion(fewest=fewest), "reference": reference(), "lists": lists(), "seed": 0}
    adaptor.main(*world, output, granularity="k6", params=params, **given)
    work.clear()  # as the command does
    return load(output)


@pytest.mark.parametrize("start", ["centroids", "drawn"])
def test_main__the_adaptors_alone_learn_the_pseudo_labels(world, tmp_path, start):
    model, encoder = run(world, tmp_path / "out", fewest=25, epochs=30, start=start), load(world[1])
    frozen = {name.replace(".block.", "."): t for name, t in model.state_dict().items() if ".adaptors." not in name}
    assert frozen.keys() == encoder.state_dict().keys()
    assert all(torch.equal(tensor, frozen[name]) for name, tensor in encoder.state_dict().items())
    assert model.config.adaptors.names == ["k6"]
    rows = (tmp_path / "out/history.csv").read_text().splitlines()
    assert rows[0] == "epoch,loss,accuracy" and len(rows) == 31  # no task can tell: the last epoch stands
    first, last = (list(map(float, row.split(","))) for row in (rows[1], rows[-1]))
    assert last[1] < 0.5 * first[1] and last[2] > 0.8


def test_main__two_runs_write_the_same_bytes_and_leave_no_checkpoint(world, tmp_path):
    for name in ("a", "b"):
        run(world, tmp_path / name, epochs=2, augmentation=VIEWS)
    for file in ("weights.safetensors", "config.json", "history.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert not list((tmp_path / ".work").rglob("*.safetensors"))
    assert (tmp_path / "a/history.csv").read_text().startswith("epoch,loss,accuracy,criterion\n1,")


def test_main__no_step_waits_for_a_gpu(world, tmp_path):
    with steps_counted() as waits:
        run(world, tmp_path / "out", watch="none", epochs=1, batch=8, augmentation=VIEWS)
    assert len(waits) == 6 and len(set(waits)) == 1


def test_main__its_key_follows_what_it_reads(world, tmp_path, monkeypatch):
    files = ["0/dots/table.parquet", "1/config.json", "2/labels.zarr/zarr.json"]
    assert_key_follows(files, lambda given: run(given, tmp_path / "out"), world, tmp_path, monkeypatch)
