"""Lets the server start runs, by its pages or by the clock: `python -m pipeline.deployment [--cron "0 2 * * *"]`.

It stays, and runs the flow of this folder whenever asked; `profile`, `targets` and `jobs` can be set for each run.
"""

import argparse
import os
import sys

from pipeline import graph, guard, project, secret, server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.deployment", description="Runs that the server starts.")
    parser.add_argument("--name", default="graph")
    parser.add_argument("--cron", metavar="WHEN", help='for example "0 2 * * *": every night at two')
    parser.add_argument("--profile", metavar="P")
    parser.add_argument("--targets", metavar="STAGE", nargs="+")
    parser.add_argument("--jobs", metavar="N", type=int)
    arguments = parser.parse_args()
    guard.end_with_starter()
    try:
        folder = graph.folder_of(arguments.profile)
        graph.closure(graph.load(folder), arguments.targets or ())
        root = project(folder)
        api = server.find(root)
        if api is None:
            raise ValueError("no Prefect server runs for this folder: start one with `make ui`, in another terminal")
        key = secret.of(root)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    server.use(api, key)
    # The flow is imported by the processes that Prefect starts, wherever they stand.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    from prefect import flow

    parameters = {"profile": arguments.profile, "targets": arguments.targets, "jobs": arguments.jobs}
    # Served by address: a flow that is handed over itself would be pickled.
    found = flow.from_source(source=str(root), entrypoint="pipeline/flows.py:reproduce")
    sys.stdout.write(f"Start a run at {server.link(api, key, '/deployments')}\n")
    sys.stdout.flush()
    found.serve(name=arguments.name, cron=arguments.cron, parameters=parameters, pause_on_shutdown=True)


if __name__ == "__main__":
    main()
