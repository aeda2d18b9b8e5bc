"""Stages on other machines: `polygrain worker`.

A Prefect work pool hands a stage, or several that follow from it, to a worker, which stands in a clone of its own. It
checks out the commit of the starter, brings what the stages read from the DVC remote, runs them, and pushes results and
runs. The starter then restores the runs: its dvc.lock is written by DVC alone.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from httpx import HTTPError
from prefect import flow, get_client, get_run_logger
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import State
from prefect.deployments import run_deployment
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.states import Cancelling, Completed, Failed
from prefect.types.entrypoint import EntrypointType
from ruamel.yaml import YAML

from pipeline import dvc_api, gpus, graph, process_group, project, server, share
from pipeline.prepare import ready
from pipeline.progress import StageProgress
from pipeline.run import Outcome, run_stage
from polygrain.config import compose
from polygrain.store.drafts import drafted

POOL = "polygrain"
CLONE = "POLYGRAIN_CLONE"
QUEUES = ("gpu", "cpu")
SECONDS_BETWEEN_LOOKS = 1.0


def join(root: Path) -> server.Server:
    """The server that runs for this clone, which this process and those it starts then use. ValueError without one."""
    running = server.required(root)
    running.use()
    # Flows are imported by the processes that Prefect starts, wherever they stand.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return running


def work(remote: str | None = None, queues: Sequence[str] = QUEUES, name: str = "") -> None:
    """Runs stages of others in this clone until it is stopped.

    ValueError: no remote or no server is known, or the clone has changes of its own, which a checkout would overwrite.
    """
    root = project(ready(inputs=False))
    revision_of(root)
    share.use_remote(root, remote)
    running, stopping = join(root), Event()
    register()
    os.environ[CLONE] = str(root)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", "process", "--pool", POOL, "--limit", "1"]
    command += ["--name", f"{name or socket.gethostname()}:{root}".replace("/", "_")]
    command += [f"--work-queue={queue}" for queue in queues]
    sys.stdout.write(f"Working for {running.pages} in {root}\n")
    sys.stdout.flush()
    process_group.stop_on_signals(stopping)
    with as_it_was(root):
        code = process_group.run(command, root, stopping=stopping, patience=0)
    sys.exit(code)


@contextmanager
def as_it_was(clone: Path) -> Iterator[None]:
    """Brings the clone back to its branch, or commit, and each dvc.lock to its present text."""
    branch, commit = git(clone, "rev-parse", "--abbrev-ref", "HEAD"), git(clone, "rev-parse", "HEAD")
    places = [clone / "dvc.lock", *clone.glob("profiles/*/dvc.lock")]
    before = {file: file.read_bytes() for file in places if file.exists()}
    yield
    git(clone, "checkout", "--quiet", "--force", commit if branch == "HEAD" else branch)
    for file in {clone / "dvc.lock", *clone.glob("profiles/*/dvc.lock")} - before.keys():
        file.unlink(missing_ok=True)
    for file, content in before.items():
        file.write_bytes(content)


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


def revision_of(clone: Path) -> str:
    """The commit that a clone is at; ValueError where tracked files differ from it.

    But for each dvc.lock, and what a worker composes anew from a profile's values.
    """
    top = Path(git(clone, "rev-parse", "--show-toplevel"))
    listed = git(clone, "diff", "--name-only", "-z", "HEAD", "--", ":/", ":(exclude,top,glob)**/dvc.lock").split("\0")
    composed = ("params.yaml", "dvc.yaml")
    changed = [
        name
        for name in filter(None, listed)
        if Path(name).name not in composed or not compose.source((top / name).parent)
    ]
    if changed:
        raise ValueError(
            f"workers run commits, and these files of {clone} are not committed: {', '.join(changed)}. Commit them, or "
            "start a worker in a clone of its own"
        )
    return git(clone, "rev-parse", "HEAD")


Dispatch = Callable[[Sequence[graph.Stage], Event, Callable[[str], None]], dict[str, Outcome]]


def dispatcher(profile: str | None, folder: Path) -> Dispatch:
    """A function that has a worker run stages (`reproduce_here`, there), and brings their results from the remote.

    ValueError: files are not committed, or no remote is known.
    """
    revision, remote = revision_of(folder), share.use_remote(folder, None)

    def run_on_worker(
        stages: Sequence[graph.Stage], stopping: Event, on_line: Callable[[str], None]
    ) -> dict[str, Outcome]:
        start, names = time.monotonic(), [stage.name for stage in stages]
        if names[0].endswith(".dvc"):
            raise ValueError(f"{names[0]} is not up to date, and workers run commits: `dvc commit` it, and commit that")
        # The worker needs the commit, and what dvc.lock says of the stages before: these results it takes as they are.
        upstream = recorded(
            folder, dict.fromkeys(name for stage in stages for name in stage.upstream if name not in names)
        )
        parameters = {"stages": names, "profile": profile, "revision": revision, "upstream": upstream}
        state = dispatch(stages, parameters, stopping, on_line)
        lines = (state.message or str(state.name)).splitlines()
        told = dict(
            line.split(": ", 1) for name, line in zip(names, lines, strict=False) if line.startswith(f"{name}: ")
        )
        tail, outcomes = lines[len(told) :], {}
        for line in (*tail, *(f"worker: {name}: {line}" for name, line in told.items())):
            on_line(line)
        for name in told or names[:1]:
            kind = "stopped" if stopping.is_set() else told.get(name, "failed").partition(",")[0]
            outcomes[name] = Outcome(kind, time.monotonic() - start, (*told.values(), *tail))
            if outcomes[name].is_done and share.restore(folder, [name], remote):
                raise ValueError(f"the worker's run of {name} is not on the remote {remote!r}")
        return outcomes

    return run_on_worker


def recorded(folder: Path, names: Iterable[str]) -> dict[str, dict]:
    """The entries of these stages in dvc.lock; an empty one for a stage with its own file."""
    with dvc_api.opened(folder):  # waits until no other process writes
        entries = locked(folder)
    return {name: {} if name.endswith(".dvc") else entries[name] for name in names}


def locked(folder: Path) -> dict[str, dict]:
    """The entries of dvc.lock; none where there is no such file."""
    file = folder / "dvc.lock"
    return YAML(typ="safe").load(file.read_text(encoding="utf-8"))["stages"] if file.exists() else {}


def dispatch(stages: Sequence[graph.Stage], parameters: dict, stopping: Event, on_line: Callable[[str], None]) -> State:
    """Has a worker run the stages, and returns the end state of its run; cancels it when stopped."""
    queue = "gpu" if stages[0].meta.get("gpu") else "cpu"
    title = graph.titled(parameters["profile"], " to ".join(dict.fromkeys([stages[0].name, stages[-1].name])))
    named = {"work_queue_name": queue, "flow_run_name": title}
    run = run_deployment(f"stage/{POOL}", **named, parameters=parameters, timeout=0)
    on_line(f"waits for a worker of the queue {queue!r} (start one: polygrain worker); its run has a page of its own")
    with get_client(sync_client=True) as client:
        while not stopping.wait(SECONDS_BETWEEN_LOOKS):
            with suppress(HTTPError):  # a server that is restarted meanwhile: the worker goes on without it
                if (state := client.read_flow_run(run.id).state).is_final():
                    return state
        client.set_flow_run_state(run.id, Cancelling(), force=False)
    return Failed(message="stopped")


@flow(name="stage", persist_result=False)
def reproduce_here(stages: list[str], profile: str | None, revision: str, upstream: dict) -> State:
    """Brings the stages' results into this worker's clone, by a run where no run of the same is known; pushes each.

    The message of its end has a line on each result, then the last lines of the last, for `dispatcher`.
    """
    folder = check_out(Path(os.environ[CLONE]), profile, revision, upstream)
    remote = share.use_remote(folder, None)
    if lacking := share.restore(folder, upstream, remote, as_recorded=True):
        raise ValueError(f"the remote {remote!r} lacks inputs of {stages[0]}: {', '.join(lacking)}")
    results = []
    for stage in stages:
        # Where somebody has shared a run of the same sources, values and inputs, there is nothing to do.
        is_lacking = share.restore(folder, [stage], remote, force=True)
        outcome = run_here(folder, stage) if is_lacking else Outcome("cached")
        results.append(f"{stage}: {outcome.result}, {outcome.seconds:.1f} s, in {folder}")
        if not outcome.is_done:
            return Failed(message="\n".join([*results, *outcome.tail]))
        share.dvc(folder, "push", "--run-cache", "--remote", remote, stage)
    return Completed(message="\n".join([*results, *outcome.tail]))


def run_here(folder: Path, stage: str) -> Outcome:
    """Runs the stage with the GPUs that it asks for; the page of this run shows its lines and how far it is."""
    log, progress = get_run_logger(), StageProgress(stage)

    def on_line(line: str) -> None:
        log.info("%s", line)
        progress.add(line)

    with gpus.lent(graph.load(folder, [stage])[-1].meta, Event()) as shown:
        return run_stage(folder, stage, on_line, Event(), shown)


def check_out(clone: Path, profile: str | None, revision: str, upstream: dict) -> Path:
    """Brings the clone to the commit, with a dvc.lock that knows what the stages read; returns the graph's folder."""
    if git(clone, "rev-parse", "HEAD") != revision:
        git(clone, "fetch", "--quiet", "origin")
    git(clone, "checkout", "--quiet", "--force", "--detach", revision)
    folder = ready(profile, clone, inputs=False)
    with drafted(folder / "dvc.lock") as draft:
        known = locked(folder) | {name: entry for name, entry in upstream.items() if entry}
        YAML(typ="safe").dump({"schema": "2.0", "stages": known}, draft)
    return folder
