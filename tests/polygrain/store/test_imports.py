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


def test_closure__holds_what_a_fresh_process_loads():
    shown = "*(getattr(one, '__file__', None) for one in [*sys.modules.values()])"
    program = f"import sys, polygrain.config.compose; print({shown})"
    run = subprocess.run([sys.executable, "-c", program], cwd=imports.ROOT, check=True, capture_output=True, text=True)
    paths = [Path(word) for word in run.stdout.split() if Path(word).is_relative_to(imports.ROOT / "polygrain")]
    loaded = {path.relative_to(imports.ROOT).as_posix() for path in paths if path.name != "__init__.py"}
    assert len(loaded) > 5 and loaded <= imports.closure([imports.ROOT / "polygrain/config/compose.py"]).keys()


def test_sources__are_the_closure_without_how_a_stage_is_run():
    found = imports.sources("gsp_report").keys()
    whole = imports.closure([imports.ROOT / "stages/gsp_report.py"]).keys()
    assert "polygrain/gsp/report/published.py" in found < whole
    assert not [name for name in found if name.startswith(imports.LEFT_OUT)]
