"""One machine more for the team's runs, in a clone of its own.

It asks the server for stages, one at a time, and exchanges data through this clone's DVC remote. A server on another
machine is reached through a tunnel: `ssh -NL 4200:127.0.0.1:4200 that-machine`, and
PREFECT_API_URL=http://127.0.0.1:4200/api; that clone's .prefect/secret, copied to this one's, lets it in.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType

from pipeline import graph, guard, project, secret, server, share


def main(remote: str | None = None, queues: Sequence[str] = ("gpu", "cpu"), name: str = "") -> None:
    """Works until it is stopped, and ends the process. ValueError: no remote is known, or no server is named."""
    guard.end_with_starter()
    root = project(graph.folder_of())
    share.use_remote(root, remote)
    api = server.find(root)
    if api is None:
        raise ValueError(
            "no Prefect server is named: set PREFECT_API_URL to the one that runs are started on, "
            "for example http://127.0.0.1:4200/api through a tunnel"
        )
    server.use(api, secret.of(root))
    from pipeline import pool

    register(pool)
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {pool.CLONE: str(root), "PYTHONPATH": os.pathsep.join(paths)}
    queues = [word for queue in queues for word in ("--work-queue", queue)]
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", "process", "--pool", pool.POOL]
    command += ["--name", f"{name or socket.gethostname()}:{root}".replace("/", "_"), "--limit", "1", *queues]
    sys.stdout.write(f"Working for {api.removesuffix('/api')} in {root}\n")
    sys.stdout.flush()
    # Through the guard: what the worker has started ends with it.
    process = subprocess.Popen(
        [sys.executable, guard.__file__, str(os.getpid()), "5", *command], start_new_session=True
    )
    try:
        sys.exit(process.wait())
    except KeyboardInterrupt:
        process.terminate()
        sys.exit(process.wait())


def register(pool: ModuleType) -> None:
    """Makes the work pool, its queues and the deployment known to the server; they stay if they are."""
    from prefect import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.deployments.runner import RunnerDeployment
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=pool.POOL, type="process"))
        # A worker that asks for a queue which does not exist gets nothing at all, without a word.
        for queue in pool.QUEUES:
            with suppress(ObjectAlreadyExists):
                client.create_work_queue(name=queue, work_pool_name=pool.POOL)
    deployment = RunnerDeployment(
        name=pool.POOL,
        flow_name=pool.reproduce_here.name,
        entrypoint=f"{pool.__name__}.{pool.reproduce_here.fn.__name__}",
        work_pool_name=pool.POOL,
        work_queue_name="cpu",
    )
    deployment._set_defaults_from_flow(pool.reproduce_here)
    deployment.apply()
