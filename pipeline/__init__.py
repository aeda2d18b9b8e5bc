"""Prefect over the graph that DVC holds.

Importing any module of this package first sets what Prefect and DVC read at their own import: no telemetry, nothing but
127.0.0.1, a history and a cache that belong to this project. What the environment already says stays. Nothing that it
writes, nor what it starts, can be changed by users outside the owner's group.
"""

import os
from contextlib import suppress
from pathlib import Path


def project(start: Path | None = None) -> Path | None:
    """The nearest folder at or above `start` (the current one) that is a DVC repository; None if there is none."""
    here = (start or Path.cwd()).resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".dvc").is_dir()), None)


def site(root: Path) -> Path:
    """Where DVC keeps what it knows of this clone's files, as pickles: its own place is a folder that all may write to.

    Made here, for this user alone, since DVC would make it for all."""
    folder = root / ".dvc" / "tmp" / "site"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    return folder


SETTINGS = {
    "DVC_NO_ANALYTICS": "1",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_API_HOST": "127.0.0.1",
    # Prefect would start a server of its own, which a killed flow leaves behind; ours ends with its starter.
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_CLI_PROMPT": "false",
}
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
# A proxy would be told the secret of a server that is on this machine.
spared = [*(os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")).split(","), "127.0.0.1"]
if "*" not in spared:
    os.environ |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(dict.fromkeys(filter(None, spared))))
# The group stays as the user has it: a team that shares a cache (DVC's `cache.shared group`) writes through it.
os.umask(os.umask(0o077) | 0o002)
if home := project():
    os.environ.setdefault("DVC_SITE_CACHE_DIR", str(site(home)))
    os.environ.setdefault("PREFECT_HOME", str(home / ".prefect"))
    # Prefect copies its pages there when a server starts; the default lies inside the installed package.
    os.environ.setdefault("PREFECT_UI_STATIC_DIRECTORY", str(home / ".prefect" / "ui"))
