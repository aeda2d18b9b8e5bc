"""Runs that the server starts (`polygrain serve`), and stages on other machines (`polygrain worker`).

A Prefect work pool hands each stage to a worker, which stands in a clone of its own. It checks out the commit of
the starter, brings what the stage reads from the DVC remote, runs it, and pushes result and run. The
starter then restores the run: its dvc.lock is written by DVC alone, and nothing is merged.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from uuid import UUID

from httpx import HTTPError
from prefect import flow, get_client, get_run_logger
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import LogFilter
from prefect.client.schemas.objects import State
from prefect.client.schemas.sorting import LogSort
from prefect.deployments import run_deployment
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.states import Cancelling, Completed, Failed
from prefect.types.entrypoint import EntrypointType
from ruamel.yaml import YAML

from pipeline import dvc_api, gpus, graph, process_group, project, server, share
from pipeline.prepare import ready
from pipeline.run import Outcome, run_stage
from polygrain.store.drafts import drafted

POOL = "polygrain"
CLONE, BRANCH = "POLYGRAIN_CLONE", "POLYGRAIN_BRANCH"
QUEUES = ("gpu", "cpu")
SECONDS_BETWEEN_LOOKS = 1.0
LOGS_AT_ONCE, LOGS_READ_AGAIN = 200, 50
LAST_LINE, LAST_LINE_SECONDS = "Finished in state", 10


def join(root: Path) -> server.Server:
    """The server that runs for this clone, which this process and those it starts then use. ValueError without one."""
    running = server.required(root)
    running.use()
    # Flows are imported by the processes that Prefect starts, wherever they stand.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return running


def serve(
    profile: str | None = None,
    targets: list[str] | None = None,
    jobs: int | None = None,
    cron: str | None = None,
    name: str = "graph",
) -> None:
    """Lets the server start runs here, one at a time, by its pages or by the clock; stays until it is stopped."""
    folder = ready(profile, keep_listings=True)  # each run renews them
    graph.load(folder, targets or ())
    root = project(folder)
    running = join(root)
    parameters = {"profile": profile, "targets": targets, "jobs": jobs}
    # Served by address: a flow that is handed over itself would be pickled.
    reproduce = flow.from_source(source=str(root), entrypoint="pipeline/flow.py:reproduce")
    sys.stdout.write(f"Start a run at {running.pages}/deployments (open {running.link()} once)\n")
    sys.stdout.flush()
    reproduce.serve(name=name, cron=cron, parameters=parameters, pause_on_shutdown=True, limit=1)


def work(remote: str | None = None, queues: Sequence[str] = QUEUES, name: str = "") -> None:
    """Runs stages of others in this clone until it is stopped.

    ValueError: no remote or no server is known, or the clone has changes of its own, which a checkout would overwrite.
    """
    root = project(ready(inputs=False))
    require_clean(root)
    share.use_remote(root, remote)
    running, stopping = join(root), Event()
    register()
    os.environ[CLONE], os.environ[BRANCH] = str(root), head_of(root)  # a stage that is killed does not go back to it
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", "process", "--pool", POOL, "--limit", "1"]
    command += ["--name", f"{name or socket.gethostname()}:{root}".replace("/", "_")]
    command += [f"--work-queue={queue}" for queue in queues]
    sys.stdout.write(f"Working for {running.pages} in {root}\n")
    sys.stdout.flush()
    process_group.stop_on_signals(stopping)
    sys.exit(process_group.run(command, root, stopping=stopping, patience=0))


def require_clean(clone: Path) -> None:
    """ValueError where files of the clone are changed and not committed; a dvc.lock is the worker's own."""
    changed = git(clone, "diff", "--name-only", "HEAD", "--", ":/", ":(exclude,top,glob)**/dvc.lock").split("\n")
    if any(changed):
        raise ValueError(
            f"{clone} has changes that are not committed, and a worker checks out the commits of others over them: "
            f"{', '.join(changed[:5])}. Commit them, or start the worker in a clone of its own"
        )


def register() -> None:
    """Makes the work pool, its queues and the deployment known to the server; they stay if they are."""
    with get_client(sync_client=True) as client:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        # A worker of a queue that does not exist waits for ever, without an error.
        for queue in QUEUES:
            with suppress(ObjectAlreadyExists):
                client.create_work_queue(name=queue, work_pool_name=POOL)
    place = {"work_pool_name": POOL, "work_queue_name": "cpu"}
    RunnerDeployment.from_flow(reproduce_here, POOL, **place, entrypoint_type=EntrypointType.MODULE_PATH).apply()


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
    """A function that has a worker run a stage (`reproduce_here`, there), and brings its result from the remote.

    ValueError: files are not committed, or no remote is known.
    """
    revision, remote = revision_of(folder), share.use_remote(folder, None)

    def run_on_worker(stage: graph.Stage, stopping: Event, on_line: Callable[[str], None]) -> Outcome:
        start = time.monotonic()
        # The worker needs the commit, and what dvc.lock says of the stages before: these results it takes as they are.
        upstream = recorded(folder, stage.upstream)
        parameters = {"stage": stage.name, "profile": profile, "revision": revision, "upstream": upstream}
        state = dispatch(stage, parameters, stopping, on_line)
        message = (state.message or str(state.name)).splitlines()
        on_line(f"worker: {message[0]}")
        if not state.is_completed():
            result = "stopped" if stopping.is_set() else "failed"
        elif share.restore(folder, [stage.name], remote):
            raise ValueError(f"the worker's run of {stage.name} is not on the remote {remote!r}")
        else:
            result = "ran" if message[0].startswith("ran") else "cached"
        return Outcome(result, time.monotonic() - start, tuple(message))

    return run_on_worker


def recorded(folder: Path, names: Sequence[str]) -> dict:
    """The entries of these stages in dvc.lock."""
    if not names:
        return {}
    with dvc_api.opened(folder):  # waits until no other process writes
        entries = YAML(typ="safe").load((folder / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    return {name: entries[name] for name in names if not name.endswith(".dvc")}


def dispatch(stage: graph.Stage, parameters: dict, stopping: Event, on_line: Callable[[str], None]) -> State:
    """Has a worker run the stage, hands on what its run logs, and returns its end state; cancels it when stopped."""
    queue = "gpu" if stage.meta.get("gpu") else "cpu"
    named = {"work_queue_name": queue, "flow_run_name": stage.name}
    run = run_deployment(f"stage/{POOL}", **named, parameters=parameters, timeout=0)
    on_line(f"waits for a worker of the queue {queue!r} (start one: polygrain worker)")
    known, ended = set(), None
    with get_client(sync_client=True) as client:
        while not stopping.wait(SECONDS_BETWEEN_LOOKS):
            # A server that is restarted meanwhile is asked again; the worker goes on without it.
            with suppress(HTTPError):
                state, lines = client.read_flow_run(run.id).state, new_lines(client, run.id, known)
                for line in lines:
                    on_line(line)
                if state.is_final():
                    ended = ended or time.monotonic()
                    # The worker sends its lines in bundles: the last ones may come after the state.
                    is_last = any(line.startswith(LAST_LINE) for line in lines)
                    if is_last or time.monotonic() - ended > LAST_LINE_SECONDS:
                        return state
        client.set_flow_run_state(run.id, Cancelling(), force=False)
    return Failed(message="stopped")


def new_lines(client: SyncPrefectClient, run: UUID, known: set[UUID]) -> list[str]:
    """The lines that a run has logged since the last call with the same set, which takes in their ids.

    They come sorted by time. The last ones are read again, since two processes log, and a line may arrive late.
    """
    of_run, offset, logs = LogFilter.model_validate({"flow_run_id": {"any_": [run]}}), len(known) - LOGS_READ_AGAIN, []
    while part := client.read_logs(of_run, LOGS_AT_ONCE, max(0, offset) + len(logs), LogSort.TIMESTAMP_ASC):
        logs += part
    fresh = [log for log in logs if log.id not in known]
    known |= {log.id for log in fresh}
    return [line for log in fresh for line in log.message.splitlines()]


@flow(name="stage", persist_result=False)
def reproduce_here(stage: str, profile: str | None, revision: str, upstream: dict) -> State:
    """Brings one stage's result into this worker's clone, by a run where no run of the same is known, and pushes it."""
    clone, log = Path(os.environ[CLONE]), get_run_logger()
    with as_before(clone):
        folder = check_out(clone, profile, revision, upstream)
        remote = share.use_remote(folder, None)
        lacking = share.restore(folder, upstream, remote, as_recorded=True)
        if lacking:
            raise ValueError(f"the remote {remote!r} lacks what {stage} reads: {', '.join(lacking)}")
        is_known = not share.restore(folder, [stage], remote, force=True)
        if is_known:  # somebody has shared a run of the same sources, values and inputs
            outcome = Outcome("cached")
        else:
            with gpus.lent(graph.load(folder, [stage])[-1].meta, Event()) as shown:
                outcome = run_stage(folder, stage, lambda line: log.info("%s", line), Event(), shown)
        if not outcome.is_done:
            return Failed(message="\n".join([outcome.result, *outcome.tail]))
        share.dvc(folder, "push", "--run-cache", "--remote", remote, stage)
        # `dispatcher` reads the first word.
        return Completed(message=f"{outcome.result}, {outcome.seconds:.1f} s, in {clone}")


@contextmanager
def as_before(clone: Path) -> Iterator[None]:
    """A block that checks out commits of others; afterwards the clone's branch and each dvc.lock are as before."""

    def locks() -> list[Path]:
        return [file for file in (clone / "dvc.lock", *clone.glob("profiles/*/dvc.lock")) if file.exists()]

    before, texts = os.environ.get(BRANCH) or head_of(clone), {file: file.read_bytes() for file in locks()}
    try:
        yield
    finally:
        git(clone, "checkout", "--quiet", "--force", before)
        for file in locks():
            file.unlink()
        for file, text in texts.items():
            file.write_bytes(text)


def head_of(clone: Path) -> str:
    """The branch of a clone, or the commit where it is on none."""
    branch = git(clone, "rev-parse", "--abbrev-ref", "HEAD")
    return git(clone, "rev-parse", "HEAD") if branch == "HEAD" else branch


def check_out(clone: Path, profile: str | None, revision: str, upstream: dict) -> Path:
    """Brings the clone to the commit, with a dvc.lock that knows what the stage reads; returns the graph's folder."""
    if git(clone, "rev-parse", "HEAD") != revision:
        git(clone, "fetch", "--quiet", "origin")
    git(clone, "checkout", "--quiet", "--force", "--detach", revision)
    folder = ready(profile, clone, inputs=False)
    with drafted(folder / "dvc.lock") as draft:
        YAML(typ="safe").dump({"schema": "2.0", "stages": upstream}, draft)
    return folder
