"""The public names: all there, all described, nothing else, and cheap until they are used."""

import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polygrain
from docs.extensions import api

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", polygrain.__all__)
def test_names__can_be_imported_and_have_a_docstring(name):
    found = getattr(polygrain, name)
    assert found.__name__ == name and found.__module__ == polygrain.HOMES[name]
    assert inspect.getdoc(found)


def test_names__no_other_is_public():
    modules = {module.name for module in pkgutil.iter_modules(polygrain.__path__)}
    held = {name for name in vars(polygrain) if not name.startswith("_")}
    assert held - modules <= {*polygrain.__all__, "HOMES", "importlib"}
    assert dir(polygrain) == polygrain.__all__
    assert not modules & set(polygrain.__all__), "a module of this name would take the place of what is imported"


def test_getattr__names_what_there_is():
    with pytest.raises(AttributeError, match=r"no 'Modell'; it has .*Model, "):
        polygrain.Modell  # noqa: B018


def test_import__takes_no_torch():
    code = "import sys, polygrain; print(any(name in sys.modules for name in ('torch', 'numpy', 'stages')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_names__work_together():
    """Three names of three rooms on one small world of two far groups."""
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(2, 8, dtype=np.float32), 10, 0)
    embeddings = centres + 0.01 * rng.normal(size=centres.shape).astype(np.float32)
    clusters = polygrain.kmeans(embeddings, 2, seed=0)
    assert isinstance(clusters, polygrain.Clusters)
    assert polygrain.retrieval_metrics(embeddings, clusters.labels)["r_precision"] == 1


def test_reference__lists_each_with_its_docstring():
    text = api.public(api.all_classes())
    for name in polygrain.__all__:
        assert f"\n.. py:{'class' if name[0].isupper() else 'function'}:: {name}(" in text or f":: {name}\n" in text
        first = inspect.getdoc(getattr(polygrain, name)).split("\n")[0].split("`")[0]
        assert api.escape(first).strip()[:40] in text
