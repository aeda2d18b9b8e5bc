"""Where plain `dvc`, too, keeps its pickles: `python -m polygrain.config.site` sets it for the clone it stands in."""

import os
import subprocess
import sys
from pathlib import Path


def keep_site(root: Path) -> None:
    """Names a folder of this clone, which only its user may enter, as DVC's site cache; the clone may have moved.

    DVC's own place is one folder for all users of the machine, and it unpickles what it finds there.
    """
    site, file = root.resolve() / ".dvc/site", root / ".dvc/config.local"
    site.mkdir(exist_ok=True)
    site.chmod(0o700)  # DVC would let everybody write there
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    if f"site_cache_dir = {site}" not in map(str.strip, lines):
        command = [sys.executable, "-m", "dvc", "config", "--local", "core.site_cache_dir", str(site)]
        environment = os.environ | {"DVC_SITE_CACHE_DIR": str(site), "DVC_NO_ANALYTICS": "1"}
        subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    keep_site(Path())
