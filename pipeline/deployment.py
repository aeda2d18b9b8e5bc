"""Lets the server start runs, by its pages or by the clock.

It stays, and runs the flow of this folder whenever asked; `profile`, `targets` and `jobs` can be set for each run.
"""

import os
import sys

from pipeline import graph, guard, project, secret, server


def main(
    profile: str | None = None,
    targets: list[str] | None = None,
    jobs: int | None = None,
    cron: str | None = None,
    name: str = "graph",
) -> None:
    """Stays until it is stopped. ValueError names an unknown profile or stage, or says that no server runs."""
    guard.end_with_starter()
    folder = graph.folder_of(profile)
    graph.closure(graph.load(folder), targets or ())
    root = project(folder)
    api = server.find(root)
    if api is None:
        raise ValueError("no Prefect server runs for this folder: start one with `polygrain ui`, in another terminal")
    key = secret.of(root)
    server.use(api, key)
    # The flow is imported by the processes that Prefect starts, wherever they stand.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    from prefect import flow

    parameters = {"profile": profile, "targets": targets, "jobs": jobs}
    # Served by address: a flow that is handed over itself would be pickled.
    found = flow.from_source(source=str(root), entrypoint="pipeline/flows.py:reproduce")
    sys.stdout.write(f"Start a run at {server.link(api, key, '/deployments')}\n")
    sys.stdout.flush()
    found.serve(name=name, cron=cron, parameters=parameters, pause_on_shutdown=True)
