"""Names of every kind through the real dvc.yaml, from the images to the pages."""

import pytest
from PIL import Image

from polygrain.store.tables import read_csv
from tests.helpers.project import edit, new_project, repro

NAMES = ["a\rb", "a\nb", "\x1b[2J", "\u202egnp", "\u200f", "\u2028", "<script>", '"', "'", ",", "\\", "$(x)"]
NAMES += ["\U0001f600", "é", "=1+1", "-rf", "x" * 251]


def few_models(values: dict) -> None:
    values["fusions"], values["distillations"] = {"average": "adaptor"}, {"encoder": "resolution"}
    values["models"] = {"encoder": "encoder", "k3": "adaptor/k3", "chosen": "choice"}
    values["adaptor"]["epochs"] = values["distillation"]["epochs"] = 1


@pytest.mark.slow
def test_repro__odd_names_reach_the_report(tmp_path):
    project = new_project(tmp_path / "project")
    edit(project, few_models)
    for i, name in enumerate(NAMES):
        Image.new("RGB", (60, 70), (i, 255 - i, 7 * i)).save(project / f"raw/shapes/class0/{name}.png")
        (project / f"raw/shapes/class1/{name}.txt").write_text("no image") if len(name) < 250 else None
    (project / "raw/shapes/class2").rename(project / "raw/shapes/class2\r\u202e")
    assert repro(project)[-1] == "report"
    rejected = {row["path"] for row in read_csv(project / "data/images/shapes/rejected.csv")}
    assert {f"class1/{name}.txt" for name in NAMES[:-1]} <= rejected
    for page in ("index.html", "blind.html"):
        text = (project / "data/report" / page).read_text(encoding="utf-8")
        assert not set(text) & {"\r", "\x1b", "\u202e", "\u200f", "\u2028"}
