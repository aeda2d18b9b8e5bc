"""The public names: what each room exports, described, and `import polygrain` alone stays cheap."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from docs.extensions import api
from polygrain.clustering import Clusters, kmeans
from polygrain.retrieval import retrieval_metrics

ROOT = Path(__file__).parents[2]
NAMES = [(room, name) for room in api.PUBLIC_ROOMS for name in importlib.import_module(room).__all__]


@pytest.mark.parametrize(("room", "name"), NAMES)
def test_names__have_a_docstring_and_stand_in_the_reference(room, name):
    value = getattr(importlib.import_module(room), name)
    assert value.__name__ == name and value.__module__.startswith(room)
    first = inspect.getdoc(value).split("\n")[0].split("`")[0]
    assert api.escape(first).strip()[:40] in api.public(api.all_classes())


def test_import__takes_no_torch():
    code = "import sys, polygrain; print(any(name in sys.modules for name in ('torch', 'numpy', 'stages')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_names__work_together():
    """Three names of two rooms on one small world of two far groups."""
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(2, 8, dtype=np.float32), 10, 0)
    embeddings = centres + 0.01 * rng.normal(size=centres.shape).astype(np.float32)
    clusters = kmeans(embeddings, 2, seed=0)
    assert isinstance(clusters, Clusters)
    assert retrieval_metrics(embeddings, clusters.labels)["r_precision"] == 1
