"""Runs that the server starts (`polygrain serve`), and stages on other machines (`polygrain worker`).

A Prefect work pool hands each stage to a worker, which stands in a clone of its own. It checks out the commit of
whoever started the run, brings what the stage reads from the DVC remote, runs it, and pushes result and run. The
starter then restores the run: its dvc.lock is written by DVC alone, and nothing is merged.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from uuid import UUID

from httpx import HTTPError
from prefect import flow, get_client, get_run_logger
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId, LogFilterTimestamp
from prefect.client.schemas.objects import State
from prefect.client.schemas.sorting import LogSort
from prefect.deployments import run_deployment
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.states import Cancelling, Completed, Failed
from ruamel.yaml import YAML

from pipeline import graph, process_group, project, server, share
from pipeline.run import Outcome, run_stage

POOL = "polygrain"
CLONE = "POLYGRAIN_CLONE"
QUEUES = ("gpu", "cpu")
SECONDS_BETWEEN_LOOKS = 1.0
LATE, LOGS_AT_ONCE = timedelta(seconds=10), 200
LAST_LINE = "Finished in state"


def join(root: Path) -> server.Server:
    """The server that runs for this clone, which this process and those it starts then use. ValueError without one."""
    found = server.find(root)
    if found is None:
        raise ValueError("no Prefect server is known: start `polygrain ui` in another terminal, or set PREFECT_API_URL")
    found.use()
    # Flows are imported by the processes that Prefect starts, wherever they stand.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return found


def serve(
    profile: str | None = None,
    targets: list[str] | None = None,
    jobs: int | None = None,
    cron: str | None = None,
    name: str = "graph",
) -> None:
    """Lets the server start runs here, one at a time, by its pages or by the clock; stays until it is stopped."""
    folder = graph.folder_of(profile)
    graph.load(folder, targets or ())
    root = project(folder)
    found = join(root)
    parameters = {"profile": profile, "targets": targets, "jobs": jobs}
    # Served by address: a flow that is handed over itself would be pickled.
    reproduce = flow.from_source(source=str(root), entrypoint="pipeline/flow.py:reproduce")
    sys.stdout.write(f"Start a run at {found.pages}/deployments (open {found.link()} once)\n")
    sys.stdout.flush()
    reproduce.serve(name=name, cron=cron, parameters=parameters, pause_on_shutdown=True, limit=1)


def work(remote: str | None = None, queues: Sequence[str] = QUEUES, name: str = "") -> None:
    """Runs stages of others in this clone until it is stopped. ValueError: no remote or no server is known."""
    root = project(graph.folder_of())
    share.use_remote(root, remote)
    found, stopping = join(root), Event()
    register()
    os.environ[CLONE] = str(root)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", "process", "--pool", POOL, "--limit", "1"]
    command += ["--name", f"{name or socket.gethostname()}:{root}".replace("/", "_")]
    command += [word for queue in queues for word in ("--work-queue", queue)]
    sys.stdout.write(f"Working for {found.pages} in {root}\n")
    sys.stdout.flush()
    process_group.stop_on_signals(stopping)
    sys.exit(process_group.run(command, root, stopping=stopping, patience=0))


def register() -> None:
    """Makes the work pool, its queues and the deployment known to the server; they stay if they are."""
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        # A worker that asks for a queue which does not exist gets nothing at all, without a word.
        for queue in QUEUES:
            with suppress(ObjectAlreadyExists):
                client.create_work_queue(name=queue, work_pool_name=POOL)
    deployment = RunnerDeployment(
        name=POOL,
        flow_name=reproduce_here.name,
        entrypoint="pipeline.workers.reproduce_here",
        work_pool_name=POOL,
        work_queue_name="cpu",
    )
    deployment._set_defaults_from_flow(reproduce_here)
    deployment.apply()


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ValueError(f"git {' '.join(arguments)} in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()


def revision_of(folder: Path) -> str:
    """The commit that workers check out; ValueError while tracked files differ from it (dvc.lock may)."""
    changed = git(folder, "diff", "--name-only", "HEAD").splitlines()
    if differing := [name for name in changed if Path(name).name != "dvc.lock"]:
        raise ValueError(f"workers run commits, and these files are not committed: {', '.join(differing)}")
    return git(folder, "rev-parse", "HEAD")


def dispatcher(profile: str | None, folder: Path) -> Callable[[graph.Stage, Event, Callable[[str], None]], Outcome]:
    """What has a worker run a stage, and brings its result here."""
    revision, remote = revision_of(folder), share.use_remote(folder, None)

    def elsewhere(stage: graph.Stage, stopping: Event, hear: Callable[[str], None]) -> Outcome:
        start = time.monotonic()
        upstream = recorded(folder, stage.upstream)
        parameters = {"stage": stage.name, "profile": profile, "revision": revision, "upstream": upstream}
        state = dispatch(stage, parameters, stopping, hear)
        lines = (state.message or str(state.name)).splitlines()
        hear(f"worker: {lines[0]}")
        if not state.is_completed():
            return Outcome("stopped" if stopping.is_set() else "failed", time.monotonic() - start, tuple(lines))
        if share.restore(folder, [stage.name], remote):
            raise ValueError(f"the worker's run of {stage.name} is not on the remote {remote!r}")
        return Outcome("ran" if lines[0].startswith("ran") else "cached", time.monotonic() - start, tuple(lines))

    return elsewhere


def recorded(folder: Path, names: Sequence[str]) -> dict:
    """The entries of these stages in dvc.lock."""
    if not names:
        return {}
    with graph.opened(folder):  # nobody is writing
        entries = YAML(typ="safe").load((folder / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    return {name: entries[name] for name in names if not name.endswith(".dvc")}


def dispatch(stage: graph.Stage, parameters: dict, stopping: Event, hear: Callable[[str], None]) -> State:
    """Has a worker run the stage, hands on what its run logs, and returns its end state; cancels it when stopped."""
    queue = QUEUES[0 if stage.meta.get("gpu") else 1]
    run = run_deployment(
        f"stage/{POOL}", parameters=parameters, flow_run_name=stage.name, timeout=0, work_queue_name=queue
    )
    with get_client(sync_client=True) as client:
        log, ended = Log(client, run.id), None
        while not stopping.wait(SECONDS_BETWEEN_LOOKS):
            # A server that is restarted meanwhile is asked again; the worker goes on without it.
            with suppress(HTTPError):
                state, lines = client.read_flow_run(run.id).state, log.new_lines()
                for line in lines:
                    hear(line)
                if state is not None and state.is_final():
                    ended = ended or time.monotonic()
                    # The worker sends its lines in bundles: the last ones may come after the state.
                    is_told = any(line.startswith(LAST_LINE) for line in lines)
                    if is_told or time.monotonic() - ended > LATE.total_seconds():
                        return state
        client.set_flow_run_state(run.id, Cancelling(), force=False)
    return Failed(message="stopped")


class Log:
    """What a run elsewhere logs, read from the server as it comes in."""

    def __init__(self, client: SyncPrefectClient, run: UUID) -> None:
        self.client, self.run = client, LogFilterFlowRunId(any_=[run])
        self.last: datetime | None = None
        self.known: set[UUID] = set()

    def new_lines(self) -> list[str]:
        """The lines that came since the last call."""
        # What is written in one moment may arrive in two.
        since = LogFilterTimestamp(after_=self.last - LATE) if self.last else None
        logs, asked = [], LogFilter(flow_run_id=self.run, timestamp=since)
        while part := self.client.read_logs(asked, LOGS_AT_ONCE, len(logs), LogSort.TIMESTAMP_ASC):
            logs += part
        fresh = [log for log in logs if log.id not in self.known]
        if logs:
            self.last, self.known = logs[-1].timestamp, {log.id for log in logs}
        return [line for log in fresh for line in log.message.splitlines()]


@flow(name="stage", persist_result=False)
def reproduce_here(stage: str, profile: str | None, revision: str, upstream: dict) -> State:
    """Runs one stage in this worker's clone and pushes what it made."""
    clone, log, stopping = Path(os.environ[CLONE]), get_run_logger(), Event()
    folder = check_out(clone, profile, revision, upstream)
    remote = share.use_remote(folder, None)
    if lacking := share.restore(folder, upstream, remote, as_recorded=True):
        raise ValueError(f"the remote {remote!r} lacks what {stage} reads: {', '.join(lacking)}")
    meta = {one.name: one.meta for one in graph.load(folder)}[stage]
    outcome = run_stage(folder, stage, int(meta.get("gpu", 0)), lambda line: log.info("%s", line), stopping)
    if not outcome.is_done:
        return Failed(message="\n".join([outcome.result, *outcome.tail]))
    share.dvc(folder, "push", "--run-cache", "--remote", remote, stage)
    return Completed(message=f"{outcome.result}, {outcome.seconds:.1f} s, in {clone}")


def check_out(clone: Path, profile: str | None, revision: str, upstream: dict) -> Path:
    """Brings the clone to the commit, with a dvc.lock that knows what the stage reads; returns the graph's folder."""
    if not re.fullmatch(r"[0-9a-f]{40,64}", revision):
        raise ValueError(f"revision is {revision!r}: give the full name of a commit")
    if git(clone, "rev-parse", "HEAD") != revision:
        git(clone, "fetch", "--quiet", "origin")
    git(clone, "checkout", "--quiet", "--force", "--detach", revision)
    folder = graph.folder_of(profile, clone)
    with (folder / "dvc.lock").open("w", encoding="utf-8") as stream:
        YAML(typ="safe").dump({"schema": "2.0", "stages": upstream}, stream)
    return folder
