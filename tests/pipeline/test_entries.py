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


def test_filled__made_from_command_and_sources(tmp_path, monkeypatch):
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/toy.py").write_text(STAGE)
    monkeypatch.setattr(imports, "ROOT", tmp_path)
    filled = WRITTEN.replace("      deps:\n        - ${encoder.path}\n", MADE)
    assert entries.filled(WRITTEN) == entries.filled(filled) == filled
    stale = filled.replace("- data/images", "- data/other\n        - ${root}/polygrain/gone").replace("- toy", "- tll")
    assert entries.filled(stale) == filled
    assert entries.written(filled) == WRITTEN
    own = WRITTEN.replace("      meta", "      params:\n        - toy.${key}\n      meta")
    assert entries.filled(own) == filled.replace("- toy\n", "- toy.${key}\n")
