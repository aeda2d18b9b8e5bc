"""What a file says of its model is tested with the collection, what a model says of its tasks with the update."""

import shutil
from pathlib import Path

import pytest
import torch

from polygrain.collection.maker import Maker, graph_of, roots
from polygrain.encoder.model import Model, load
from tests.helpers.pretended_gpu import pretended_gpu


@pytest.mark.parametrize("place", ["data/choice", "data/choice/without_training", "models/abc", "data/gallery/dots"])
def test_graph_of__what_lies_in_its_data_or_models(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_of(tmp_path / place) is None
    (tmp_path / "params.yaml").write_text("paths: {dots: ../my dots, bars: /elsewhere}\n")
    assert graph_of(tmp_path / place) == tmp_path and graph_of(tmp_path / "choice") is None
    assert roots(tmp_path) == {"dots": tmp_path / "../my dots", "bars": Path("/elsewhere")}
    (tmp_path / "link").symlink_to(tmp_path / place)
    assert graph_of(tmp_path / "link") == tmp_path
    monkeypatch.chdir(tmp_path)
    assert graph_of(Path(place)) == tmp_path


def test_roots__of_a_damaged_file_and_of_another_project(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("paths: [")
    with pytest.raises(ValueError, match=r"params\.yaml is missing or damaged"):
        roots(tmp_path)
    for text in ("", "5", "seed: 3", "paths: data/raw"):
        (tmp_path / "params.yaml").write_text(text)
        assert roots(tmp_path) == {}


def test_digest__says_what_is_missing(fused: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        _ = Maker(tmp_path).digest
    (tmp_path / "config.json").write_bytes((fused / "config.json").read_bytes())
    with pytest.raises(ValueError, match=r"weights\.safetensors is missing"):
        _ = Maker(tmp_path).digest


def encoder(model: Model) -> Model:
    return Maker(None, model, "abc").encoder().network


def test_encoder__without_adaptors_and_what_was_made_for_them(fused: Path) -> None:
    model, plain = load(fused), load(f"{fused}-encoder")
    model.reduce(torch.eye(24)[:8], torch.zeros(8))
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(encoder(model)(images), plain(images))
    assert Maker(None, plain).encoder() is None
    # Without adaptors there is an encoder, too, behind a last layer.
    reduced = load(f"{fused}-encoder")
    reduced.reduce(torch.eye(24)[:8], torch.zeros(8))
    torch.testing.assert_close(encoder(reduced)(images), plain(images))
    of_several = encoder(load(fused).at_side(32, False, 2))
    torch.testing.assert_close(of_several(images), plain(images))
    assert of_several.dim == 24
    with pretended_gpu():
        assert encoder(model.to("cuda")).mean.is_cuda


def test_network__is_that_of_the_digest(fused: Path, tmp_path: Path) -> None:
    """A model that is trained anew in its folder meanwhile embeds nothing under the earlier name."""
    maker = Maker(Path(shutil.copytree(fused, tmp_path / "model")))
    assert maker.digest
    (tmp_path / "model/config.json").write_text((fused / "config.json").read_text() + "\n")
    with pytest.raises(ValueError, match="is another one now"):
        _ = maker.network
