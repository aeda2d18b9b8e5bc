import subprocess
import sys
from pathlib import Path

from polygrain.store import imports


def test_names__of_modules_or_of_what_they_come_from(tmp_path):
    (tmp_path / "a.py").write_text(
        "import os.path\nfrom polygrain.store import arrays\nfrom polygrain.store.arrays import open\n"
        "def later():\n    from numpy import array\n"
    )
    assert imports.names(tmp_path / "a.py") == {"os.path", "polygrain.store.arrays", "numpy"}
    assert imports.imported(tmp_path / "a.py") == [imports.ROOT / "polygrain/store/arrays.py"]


def test_sources__hold_what_a_fresh_process_loads():
    program = (
        "import sys, stages.gsp_report; print(*(getattr(one, '__file__', None) for one in [*sys.modules.values()]))"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=imports.ROOT, check=True, capture_output=True, text=True)
    paths = [Path(word) for word in run.stdout.split() if Path(word).is_relative_to(imports.ROOT)]
    loaded = {path.relative_to(imports.ROOT).as_posix() for path in paths if path.name != "__init__.py"}
    loaded = {name for name in loaded if name.startswith(("stages/", "polygrain/"))}
    found = imports.sources("gsp_report").keys()
    assert "polygrain/gsp/report/published.py" in found & loaded
    assert loaded <= imports.closure([imports.ROOT / "stages/gsp_report.py"]).keys()
    assert found == {name for name in imports.closure(map(imports.ROOT.joinpath, found), imports.LEFT_OUT)}
