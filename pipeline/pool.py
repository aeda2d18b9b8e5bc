"""Stages on other machines: a Prefect work pool hands each to a worker, results travel through the DVC remote.

The worker stands in a clone of its own. It checks out the commit of whoever started the run, brings what the stage
reads from the remote, runs the stage, and pushes result and run. The starter then finds the run in the run cache:
its dvc.lock is written by dvc alone, and nothing is merged.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from uuid import UUID

from httpx import HTTPError
from prefect import flow, get_client, get_run_logger
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId, LogFilterTimestamp
from prefect.client.schemas.objects import State
from prefect.client.schemas.sorting import LogSort
from prefect.deployments import run_deployment
from prefect.states import Cancelling, Completed, Failed
from ruamel.yaml import YAML, YAMLError

from pipeline import execution, graph, share
from pipeline.execution import DVC, Calls

POOL = "polygrain"
CLONE = "POLYGRAIN_CLONE"
QUEUES = ("gpu", "cpu")
SECONDS_BETWEEN_LOOKS = 1.0
LATE, LOGS_AT_ONCE = timedelta(seconds=10), 200
LAST_LINE = "Finished in state"


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


def entries_of(folder: Path, names: tuple[str, ...], patience: float = 30) -> dict:
    """The entries of these stages in dvc.lock; waits while dvc is writing the file, which it does not do at once."""
    deadline = time.monotonic() + patience
    while True:
        try:
            entries = (
                YAML(typ="safe").load((folder / "dvc.lock").read_text(encoding="utf-8"))["stages"] if names else {}
            )
            return {name: entries[name] for name in names if not name.endswith(".dvc")}
        except (OSError, YAMLError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                raise ValueError(f"{folder / 'dvc.lock'} lacks what {', '.join(names)} have made: {error}") from error
            time.sleep(0.1)


class Said:
    """What a run elsewhere logs, read from the server as it comes in."""

    def __init__(self, client: SyncPrefectClient, run: UUID) -> None:
        self._client, self._run = client, LogFilterFlowRunId(any_=[run])
        self._last: datetime | None = None
        self._known: set[UUID] = set()

    def news(self) -> list[str]:
        """The lines that came since the last call."""
        # What is written in one moment may arrive in two.
        since = LogFilterTimestamp(after_=self._last - LATE) if self._last else None
        wanted, found = LogFilter(flow_run_id=self._run, timestamp=since), []
        while part := self._client.read_logs(wanted, LOGS_AT_ONCE, len(found), LogSort.TIMESTAMP_ASC):
            found += part
        fresh = [log for log in found if log.id not in self._known]
        if found:
            self._last, self._known = found[-1].timestamp, {log.id for log in found}
        return [line for log in fresh for line in log.message.splitlines()]


def dispatch(
    stage: graph.Stage,
    profile: str | None,
    folder: Path,
    revision: str,
    stopping: Event,
    hear: Callable[[str], None],
) -> State:
    """Has a worker run the stage, hands on what its run logs, and returns its end state; cancels it when asked to."""
    parameters = {
        "stage": stage.name,
        "profile": profile,
        "revision": revision,
        "upstream": entries_of(folder, stage.upstream),
    }
    queue = QUEUES[0 if stage.meta.get("gpu") else 1]
    made = run_deployment(
        f"stage/{POOL}", parameters=parameters, flow_run_name=stage.name, timeout=0, work_queue_name=queue
    )
    with get_client(sync_client=True) as client:
        said, ended = Said(client, made.id), None
        while True:
            # A server that is restarted meanwhile is asked again; the worker goes on without it.
            with suppress(HTTPError):
                state = client.read_flow_run(made.id).state
                news = said.news()
                for line in news:
                    hear(line)
                if state is not None and state.is_final():
                    ended = ended or time.monotonic()
                    # The worker sends its lines in bundles: the last ones may come after the state.
                    is_told = any(line.startswith(LAST_LINE) for line in news)
                    if is_told or stopping.is_set() or time.monotonic() - ended > LATE.total_seconds():
                        return state
            if stopping.wait(SECONDS_BETWEEN_LOOKS):
                client.set_flow_run_state(made.id, Cancelling(), force=False)
                return Failed(message="stopped")


@flow(name="stage", persist_result=False)
def reproduce_here(stage: str, profile: str | None, revision: str, upstream: dict) -> State:
    """Runs one stage in this worker's clone and pushes what it made."""
    clone, log, calls = Path(os.environ[CLONE]), get_run_logger(), Calls()
    folder = check_out(clone, profile, revision, upstream)
    remote = share.use_remote(folder, None)

    def hear(line: str) -> None:
        log.info("%s", line)

    def call(*arguments: str) -> None:
        if code := calls.run([*DVC, *arguments], folder, hear):
            raise RuntimeError(f"dvc {' '.join(arguments)} ended with {code} in {folder}")

    try:
        meta = {one.name: one.meta for one in graph.load(folder)}[stage]
        if upstream:
            # By name and by force: what an earlier run has left in this clone may be another version.
            share.pull(folder, remote, set(upstream), force=True)
        outcome = execution.reproduce(calls, folder, stage, int(meta.get("gpu", 0)), hear)
        if outcome.result not in ("ran", "cached"):
            return Failed(message="\n".join([outcome.result, *outcome.tail]))
        call("push", "--run-cache", "--remote", remote, stage)
    finally:
        calls.stop()
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
