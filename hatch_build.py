"""The wheel claims one name at top level, `polygrain`: `stages` and `pipeline` move into it, and imports follow them.

In the repository they stay at top level, where the graph runs them; an editable install is of the repository.
"""

import re
import shutil
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MOVED = ("stages", "pipeline")
IMPORT = re.compile(r"^(\s*(?:from|import) )(stages|pipeline)(?=[. ])", re.MULTILINE)
PLACE = re.compile(r'": "(stages|pipeline)\.')  # of a public name that is imported when it is asked for


class OneName(BuildHookInterface):
    def initialize(self, version: str, build_data: dict) -> None:
        if version == "editable":
            return
        self.built = Path(tempfile.mkdtemp())
        package = self.built / "polygrain"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(self.root) / "polygrain", package, ignore=ignored)
        for name in MOVED:
            shutil.copytree(Path(self.root) / name, package / name, ignore=ignored)
        for file in package.rglob("*.py"):
            text = IMPORT.sub(r"\1polygrain.\2", file.read_text(encoding="utf-8"))
            text = PLACE.sub(r'": "polygrain.\1.', text) if file == package / "__init__.py" else text
            file.write_text(text, encoding="utf-8")
        build_data["force_include"][str(package)] = "polygrain"

    def finalize(self, version: str, build_data: dict, artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self.built)
