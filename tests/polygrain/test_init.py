"""The public names: what each room exports, described, and `import polygrain` alone stays cheap."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import polygrain
from polygrain import collection, encoder
from polygrain.cli.main import EXTRAS
from polygrain.clustering import Clusters, kmeans
from polygrain.retrieval import retrieval_metrics
from tests.helpers.photos import write_photos
from tests.helpers.small import write_encoder

ROOT = Path(__file__).parents[2]
FILES = [file for file in sorted((ROOT / "polygrain").rglob("__init__.py")) if "__all__" in file.read_text()]
ROOMS = [".".join(file.parent.relative_to(ROOT).parts) for file in FILES]

LINE = "error: faiss is not installed: pip install 'polygrain[cpu]', or 'polygrain[gpu]' for a GPU\n"


@pytest.mark.parametrize("room", ROOMS)
def test_names__have_a_docstring_and_stand_in_the_reference(room):
    reference, package = (ROOT / "docs/reference/api.md").read_text(), importlib.import_module(room)
    for name in package.__all__:
        assert re.search(rf":: (polygrain\.{name}|{room}\.{name}|{room})\n", reference)
        value = getattr(package, name)
        assert value.__name__ == name and value.__module__.startswith(room) and inspect.getdoc(value)


def test_import__takes_no_torch():
    code = "import sys, polygrain; print(any(name in sys.modules for name in ('torch', 'numpy', 'stages')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_names__of_the_first_line_are_those_of_their_rooms():
    assert (
        polygrain.load is encoder.load
        and polygrain.embed is collection.embed
        and polygrain.Collection is collection.Collection
    )
    with pytest.raises(AttributeError, match="nothing"):
        _ = polygrain.nothing


def test_prefect__is_asked_for_in_one_sentence(tmp_path):
    code = "import sys; sys.modules['prefect'] = None; from polygrain.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "flow"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "error: prefect is not installed: pip install 'polygrain[flow]'",
    )


def without(modules: Iterable[str], folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Runs a command where these modules are not installed."""
    code = f"import sys; sys.modules |= dict.fromkeys({[*modules]}); from polygrain.cli.main import main; main()"
    environment, program = os.environ | {"PYTHONPATH": str(ROOT)}, [sys.executable, "-c", code, *words]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_light_install__embeds_searches_and_smooths_and_says_what_a_project_needs(tmp_path):
    """Without the modules of the extras; those of `run` that timm or torch bring stay."""
    gone = EXTRAS.keys() - {"faiss", "filelock", "torchvision"}
    write_encoder(tmp_path / "model")
    write_photos(tmp_path / "images")
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(120, 16)).astype(np.float32))
    for line in ("embed images -o e.parquet --model model", "smooth v.npy -o s.npy", "model model"):
        done = without(gone, tmp_path, *line.split())
        assert done.returncode == 0, done.stderr
    (image, *_) = sorted(map(str, (tmp_path / "images").rglob("*.[jp]*g")))
    done = without(gone, tmp_path, "search", image, "--in", "e.parquet", "--model", "model")
    assert done.returncode == 0 and done.stdout
    for words, extra in ((("run", "--dry"), "run"), (("flow",), r"(run|flow)")):
        done = without(gone, ROOT, *words)
        assert done.returncode == 1
        assert re.fullmatch(rf"error: \S+ is not installed: pip install 'polygrain\[{extra}\]'\n", done.stderr)


@pytest.mark.slow
def test_faiss__is_asked_for_in_one_sentence_and_only_where_it_is_needed(tmp_path):
    """As where the wheel is installed without an extra."""
    write_encoder(tmp_path / "model")
    (tmp_path / "images").mkdir()
    code = "import sys; sys.modules['faiss'] = None; from polygrain.cli.main import main; main()"
    for words, expected in (
        (["model", "model"], ""),
        (["embed", "images", "-o", "e.parquet", "--model", "model"], LINE),
    ):
        program = [sys.executable, "-c", code, *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == bool(expected) and done.stderr.partition("\n")[2] == expected


def test_names__work_together():
    """Three names of two rooms on one small world of two far groups."""
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(2, 8, dtype=np.float32), 10, 0)
    embeddings = centres + 0.01 * rng.normal(size=centres.shape).astype(np.float32)
    clusters = kmeans(embeddings, 2, seed=0)
    assert isinstance(clusters, Clusters)
    assert retrieval_metrics(embeddings, clusters.labels)["r_precision"] == 1
