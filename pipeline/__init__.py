"""Prefect over the graph that DVC holds.

Importing any module of this package sets what Prefect and DVC read at their own import: no telemetry, nothing but
127.0.0.1, a history and a cache that belong to this clone. What the environment already says stays.
"""

import os
from pathlib import Path

from polygrain.config.site import site_of


def project(start: Path | None = None) -> Path | None:
    """The nearest folder at or above `start` (the current one) that is a DVC repository; None if there is none."""
    here = (start or Path.cwd()).resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".dvc").is_dir()), None)


SETTINGS = {
    "DVC_NO_ANALYTICS": "1",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_API_HOST": "127.0.0.1",
    # Prefect would start a server of its own, which outlives a flow that is killed.
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_CLI_PROMPT": "false",
}
if root := project():
    SETTINGS["DVC_SITE_CACHE_DIR"] = str(site_of(root))  # from the first call on
    SETTINGS["PREFECT_HOME"] = str(root / ".prefect")
    # Prefect copies its pages there when a server starts; its default lies inside the installed package.
    SETTINGS["PREFECT_UI_STATIC_DIRECTORY"] = str(root / ".prefect/ui")
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
# This machine needs no proxy, whichever of the two names a library reads; a * counts only alone.
HOSTS = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
if HOSTS != "*" and "127.0.0.1" not in HOSTS:
    HOSTS = f"{HOSTS},127.0.0.1".lstrip(",")
os.environ["no_proxy"] = os.environ["NO_PROXY"] = HOSTS
