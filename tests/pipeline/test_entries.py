from pathlib import Path

import pytest

from pipeline import entries
from polygrain.store import imports

STAGE = """
import numpy as np

class Params:
    def fits(self, lists):
        lists.fusions

def main(raw, images, output, output_views, *, task, params, blocks, lists, seed):
    lists.tasks[task], lists.mpcl[item.run], lists.gsp[other], lists.trained, lists.append(1)

command.run(main, Params, blocks="choice.blocks")
"""
WRITTEN = """\
# Above all
stages:
  toy:
    foreach: ${tasks}
    do:
      cmd: >-
        exec ${root}/stages/run toy '${item}' data/images data/toy/${key} data/views
        --task ${key}
      deps:
        - ${encoder.path}
      meta: {gpu: 1} # a word

  # Between
artifacts:
  model:
    path: data/toy
"""
MADE = """\
      deps:
        - ${item}
        - data/images
        - ${encoder.path}
        - ${root}/stages/toy.py
      params:
        - toy
        - adaptors
        - choice.blocks
        - gsp
        - mpcl.${item.run}
        - seed
        - tasks.${key}
        - ${versions}: [numpy]
      outs:
        - data/toy/${key}
        - data/views
"""


FILLED = WRITTEN.replace("      deps:\n        - ${encoder.path}\n", MADE)


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch) -> Path:
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/toy.py").write_text(STAGE)
    monkeypatch.setattr(imports, "ROOT", tmp_path)
    return tmp_path / "stages/toy.py"


def test_filled__made_from_command_and_sources():
    assert entries.filled(WRITTEN) == entries.filled(FILLED) == FILLED
    stale = FILLED.replace("- data/images", "- data/other\n        - ${root}/polygrain/gone").replace("- toy", "- tll")
    assert entries.filled(stale) == FILLED
    assert entries.written(FILLED) == WRITTEN
    own = WRITTEN.replace("      meta", "      params:\n        - toy.${key}\n      meta")
    assert entries.filled(own) == FILLED.replace("- toy\n", "- toy.${key}\n")
    assert (
        entries.filled(FILLED.replace("      params:", "\n      params:")).replace("\n\n      meta", "\n      meta")
        == FILLED
    )
    assert entries.filled(FILLED.replace("        - data/images", "\n        - data/images")) == FILLED


def test_filled__paths_of_a_named_tuple(toy):
    reads = "class Reads(NamedTuple):\n    raw: Path\n    images: Path\n\ndef main(reads: Reads,"
    toy.write_text(STAGE.replace("def main(raw, images,", reads))
    assert entries.filled(WRITTEN) == FILLED


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        - data/images", "        # why\n        - data/images", "# why"),
        ("        - data/images", "      # why\n        - data/images", "# why"),
        ("        - data/images", "        - data/images # why", "# why"),
        ("        - data/images", "  # why\n        - data/images", "indent all its lines"),
        ("        - gsp\n", "        - other.yaml: [a]\n", r"other\.yaml"),
        ("- data/toy/${key}\n", "- data/toy/${key}: {cache: false}\n", "cache"),
        ("stages:\n  toy:", "stages: {}\nmetrics:\n  toy:", r"toy\.py has no entry: write 'toy' below `stages:`"),
        ("artifacts:", "  typo:\n    cmd: exec run typo data/typo\nartifacts:", r"'typo' needs stages/typo\.py"),
        ("data/images data/toy", "data/toy", r"a path for each of \(raw, images, output, output_views\)"),
        (" --task ${key}", " --task", "options with their values"),
    ],
)
def test_filled__refuses(old: str, new: str, message: str):
    assert FILLED.count(old) == 1
    with pytest.raises(ValueError, match=message):
        entries.filled(FILLED.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("output, output_views", "out, views", "name the output's parameter"),
        ("def main", "def other", "with `def main`"),
        ("command.run", "command.start", "`command.run"),
    ],
)
def test_filled__refuses_a_stage_without(toy: Path, old: str, new: str, message: str):
    toy.write_text(STAGE.replace(old, new))
    with pytest.raises(ValueError, match=message):
        entries.filled(WRITTEN)
