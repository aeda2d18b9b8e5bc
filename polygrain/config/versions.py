"""versions.yaml, on whose lines stages depend, from requirements.lock: `python -m polygrain.config.versions`."""

import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from polygrain.store.drafts import drafted

# The libraries whose versions decide results, by the name that is imported.
PACKAGES = {
    "PIL": "pillow",
    "faiss": "faiss-cpu",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "pillow_heif": "pillow-heif",
    "pytorch_metric_learning": "pytorch-metric-learning",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "timm": "timm",
    "torch": "torch",
    "torchvision": "torchvision",
}
HEADER = "# From requirements.lock by `make lock`: a stage runs again where a library that it uses has changed.\n"


def text(lock: str) -> str:
    """A line for each library; two versions where the lock has one for each of two versions of Python."""
    versions = {name: re.findall(rf"^{name}==([\w.+]+)", lock, re.MULTILINE) for name in sorted(PACKAGES.values())}
    return HEADER + "".join(f'{name}: "{" or ".join(both)}"\n' for name, both in versions.items())


def require_one_faiss() -> None:
    """ValueError where two builds of faiss are installed: both fill one folder, in which their files mix."""
    builds = []
    for name in ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12"):
        with suppress(metadata.PackageNotFoundError):
            builds.append(f"{name}=={metadata.version(name)}")
    if len(builds) > 1:
        names = [build.partition("=")[0] for build in builds]
        raise ValueError(
            f"{' and '.join(builds)} lie in one folder: `pip uninstall -y {' '.join(names)}`, then install one of them"
        )


if __name__ == "__main__":
    with drafted(Path("versions.yaml")) as draft:
        draft.write_text(text(Path("requirements.lock").read_text(encoding="utf-8")), encoding="utf-8")
