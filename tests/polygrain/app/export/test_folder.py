"""An exported folder, used as its card says by processes in which nothing of this project can be imported."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from polygrain.app.export import folder
from polygrain.app.export.targets import TARGETS, torch_export
from polygrain.collection.postprocessing import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.encoder import load
from tests.helpers.small import adapted, write_encoder, write_model

ALONE = """
import sys
for name in ("stages", "polygrain", "pipeline", "timm"):
    sys.modules[name] = None
"""
LIBRARIES = [target.LIBRARY for target in TARGETS]
COMPARISON = Comparison(tuple(np.linspace(0, 0.2, 24, dtype=np.float32).tolist()))


@pytest.fixture(scope="module")
def chosen(tmp_path_factory) -> Path:
    """data/choice with what a run leaves beside it."""
    data = tmp_path_factory.mktemp("run") / "data"
    model = adapted(write_encoder(data / "encoder"), ["k4", "k8"], 1, fusion="attention").at_side(48, True)
    model.config = model.config.model_copy(update={"shape": "whole"})
    write_model(model, data / "choice")
    Comparisons({"a|b": COMPARISON}).write(data / "choice")
    choice = {"name": "two <sets>", "why": ["It is the best."], "learnt": {"tasks": ["dots", "a|b"], "images": 4800}}
    (data / "choice/choice.json").write_text(json.dumps(choice))
    (data / "report").mkdir()
    (data / "report/headline.json").write_text('{"result": {"encoder": 50.0, "recommended": 62.5}}')
    return data / "choice"


@pytest.fixture(scope="module")
def exported(chosen, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("elsewhere") / "exported"
    written = list(folder.write(chosen, output, task="a|b"))
    assert [one.name for one in written] == [target.FILE for target in TARGETS]
    assert all(one.difference <= 1e-5 and one.size > 10_000 for one in written)
    return output


def snippets(card: str) -> dict[str, str]:
    """The card's blocks of code by the heading they stand under."""
    return dict(re.findall(r"^## ([^\n]+)$(?:(?!^##).)*?^```python\n(.*?)^```$", card, re.M | re.S))


@pytest.mark.slow
def test_write__the_card_runs_without_this_project(chosen, exported, tmp_path):
    """torch, onnxruntime and faiss as the card has them, on a square and a tall image that test the preparation."""
    rng, files = np.random.default_rng(0), ["first.jpg", "second.jpg"]
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    for file, shape in zip(files, [(60, 80, 3), (40, 70, 3)], strict=True):
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(exported / file, exif=turned)
    parts = snippets((exported / "README.md").read_text())
    model = load(chosen)
    given = [model(model.transform(Image.open(exported / file))[None]).numpy() for file in files]
    expected = COMPARISON.query(np.concatenate(given))
    code = ALONE + parts["Prepare an image"]
    for name in LIBRARIES:
        code += parts[name] + f"np.save({str(tmp_path / name)!r}, embeddings)\n"
    code += parts["faiss"] + "assert rows[0, 0] == 0\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=exported, capture_output=True, text=True)
    for file in files:
        (exported / file).unlink()
    assert done.returncode == 0, done.stderr
    for name in LIBRARIES:
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_write__the_card_says_what_is_known(exported):
    card = (exported / "README.md").read_text()
    for line in (
        r"# two \<sets\>",
        "| input | shorter side 32 px, longer side at most 96 px, RGB, float32 in 0..1; normalised inside",
        "| adaptors | k4, k8 (attention) |",
        r"| mean | the mean of the task a\|b is subtracted",
        r"4,800 images of dots, a\|b, without labels.",
        "recommends: encoder 50.0, recommended 62.5",
        "- It is the best.",
    ):
        assert line in card
    assert not re.search(r"\$\w|\bNone\b(?!, {)", card)
    for name, code in snippets(card).items():
        compile(code, name, "exec")
    assert {*snippets(card)} - {"faiss", "Qdrant", "pgvector"} == {"Prepare an image", *LIBRARIES}


@pytest.mark.slow
def test_write__replaces_an_earlier_export_and_nothing_else(chosen, exported, tmp_path):
    folder.require_free(exported)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").touch()
    (tmp_path / "file").touch()
    for name, message in (("photos", "photos holds 'cat.jpg'"), ("file", "file is ")):
        with pytest.raises(ValueError, match=message):
            list(folder.write(chosen, tmp_path / name))
    assert {path.name for path in tmp_path.rglob("*")} == {"photos", "cat.jpg", "file"}


def test_write__leaves_nothing_where_a_program_differs(chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "trace", lambda *_: b"a program")
    monkeypatch.setattr(folder, "has_free_sides", lambda _: True)
    monkeypatch.setattr(torch_export, "write", lambda program, file: file.write_bytes(program))
    monkeypatch.setattr(torch_export, "runner", lambda file: file.read_bytes)
    monkeypatch.setattr(folder, "difference", lambda *_: 2e-4)
    with pytest.raises(ValueError, match="differs"):
        list(folder.write(chosen, tmp_path / "exported"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("task", "message"), [(None, r"choice.json is missing or damaged"), ("gone", r"no task 'gone'; it knows a\|b")]
)
def test_write__what_is_wrong_is_named_before_work_starts(chosen, tmp_path, monkeypatch, task, message):
    damaged = chosen if task else write_model(load(chosen), tmp_path / "choice")
    if not task:
        (damaged / "choice.json").write_text('{"name": 5}')
    monkeypatch.delattr(folder, "trace")
    with pytest.raises(ValueError, match=message):
        list(folder.write(damaged, tmp_path / "exported", task=task))
    assert not (tmp_path / "exported").exists()
