"""`polygrain docs`: the site, offline."""

import subprocess
import sys
from pathlib import Path

import typer

SITE = "docs/_build/html"


def docs() -> None:
    """Build the documentation, offline, and say where it is.

    Example: polygrain docs
    """
    from pipeline import project

    root = project()
    if root is None or not (root / "docs/conf.py").exists():
        raise ValueError(f"{Path.cwd()} is in no clone of polygrain: the documentation is built from docs/ there")
    sphinx = [sys.executable, "-m", "sphinx", "-E", "-W", "--keep-going", "-q", "-b", "html", "docs", SITE]
    if code := subprocess.run(sphinx, cwd=root).returncode:
        sys.exit(code)
    typer.echo(f"{root / SITE / 'index.html'}")
