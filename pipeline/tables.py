"""Empty tables for a server that starts with none.

Prefect makes them by all the changes they have been through in years: five seconds of a processor, two thirds of a
first start. The install does that once (`python -m pipeline.tables`), and every new history is a copy.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

PROGRAM = """
import asyncio
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
"""


def file() -> Path:
    """Where an environment keeps them, beside the code that they are made by: another version has others."""
    return Path(sys.prefix) / "share" / "polygrain" / f"prefect-{version('prefect')}.db"


def make() -> Path:
    """The file of this environment, made if it is missing."""
    if (found := file()).exists():
        return found
    found.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=found.parent) as folder:
        made = Path(folder) / "made.db"
        settings = {"PREFECT_HOME": folder, "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{made}"}
        subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | settings, check=True)
        with closing(sqlite3.connect(made)) as database:
            # All of it in one file: what a server writes goes beside it.
            database.execute("pragma journal_mode = delete")
        made.replace(found)
    return found


def place(home: Path) -> None:
    """Gives a folder without a history the empty tables, where the environment has them; else the server makes them."""
    history = home / "prefect.db"
    if history.exists() or not file().exists():
        return
    with tempfile.TemporaryDirectory(dir=home) as folder:
        copy = Path(shutil.copyfile(file(), Path(folder) / "prefect.db"))
        copy.chmod(0o600)
        with suppress(FileExistsError):
            history.hardlink_to(copy)


if __name__ == "__main__":
    make()
