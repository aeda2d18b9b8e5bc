"""The graph as a Prefect flow: one task per stage that is not up to date, edges from DVC alone.

    python -m pipeline.flows [--profile P] [--targets STAGE ...] [--jobs N] [--workers]

Prefect adds parallel branches, pages to watch, retries (`meta: retries`) and limits (`meta: gpu`). What is stale, what
a stage reads and what a result is stays with DVC: tasks pass nothing on, and Prefect caches nothing.
"""

import argparse
import os
import queue
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from threading import Event

from prefect import flow, get_client, get_run_logger, runtime, task
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, Completed, Failed

from pipeline import artifacts, execution, graph, lockfile, pool, project, server, share
from pipeline.execution import Calls, Outcome
from pipeline.graph import Stage
from pipeline.progress import Progress

SECONDS_BETWEEN_LOOKS = 3.0
"""How often the flow asks whether someone cancelled it."""


@dataclass
class Run:
    """One run of the flow: where, what is under way, and what became of each stage so far."""

    folder: Path
    dispatch: Callable[[Stage, Event], State] | None = None
    """Has a worker elsewhere run a stage and share it; without it stages run here."""
    calls: Calls = field(default_factory=Calls)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def submit(self, stage: Stage, upstream: list[PrefectFuture]) -> PrefectFuture:
        """A task for this stage, under the stage's own name and description."""
        retries = int(stage.meta.get("retries", 0))
        tags = ["gpu"] if stage.meta.get("gpu") else []
        plain = {"persist_result": False, "cache_policy": NO_CACHE, "retries": retries, "retry_delay_seconds": 5}
        made = task(lambda: self.reproduce(stage), name=stage.name, description=stage.desc, tags=tags, **plain)
        return made.with_options(task_run_name=stage.name).submit(wait_for=upstream)

    def reproduce(self, stage: Stage) -> State:
        """Runs the stage and tells Prefect what it writes and how far it is."""
        log, shown = get_run_logger(), Shown(stage.name)

        def hear(line: str) -> None:
            log.info("%s", line)
            shown.hear(line)

        outcome = self.elsewhere(stage, hear) if self.dispatch else self.here(stage, hear)
        self.outcomes[stage.name] = outcome
        shown.finish(outcome.result)
        message = f"{outcome.result}, {outcome.seconds:.1f} s"
        if outcome.result in ("ran", "cached"):
            return Completed(name="Cached" if outcome.result == "cached" else "Completed", message=message)
        if stage.meta.get("retries"):
            # Prefect retries what raises, not what returns a failure; a failure that is returned reads better.
            raise RuntimeError(message)
        return Failed(message="\n".join([message, *outcome.tail]))

    def here(self, stage: Stage, hear: Callable[[str], None]) -> Outcome:
        return execution.reproduce(self.calls, self.folder, stage.name, int(stage.meta.get("gpu", 0)), hear)

    def elsewhere(self, stage: Stage, hear: Callable[[str], None]) -> Outcome:
        """Has a worker run the stage, then brings its result here, where dvc finds the worker's run and restores it."""
        start = time.monotonic()
        state = self.dispatch(stage, self.calls.stopping)
        lines = (state.message or state.name).splitlines()
        hear(f"worker: {lines[0]}")
        if not state.is_completed():
            stopped = self.calls.stopping.is_set()
            return Outcome("stopped" if stopped else "failed", time.monotonic() - start, tuple(lines))
        restored = execution.reproduce(self.calls, self.folder, stage.name, 0, hear, ("--pull",))
        result = "ran" if restored.result == "cached" and lines[0].startswith("ran") else restored.result
        return Outcome(result, time.monotonic() - start, restored.tail)


class Shown:
    """The progress artifact of a stage; only stages long enough to tell how far they are have one."""

    def __init__(self, stage: str) -> None:
        self._stage, self._progress, self._artifact, self._last = stage, Progress(), None, 0.0

    def hear(self, line: str) -> None:
        if not self._progress.hear(line):
            return
        now = time.monotonic()
        if self._artifact is None:
            key = f"progress-{artifacts.slug(self._stage)}"
            self._artifact = create_progress_artifact(self.percent, key=key, description=self.text)
        # Every update is a row in the server's database.
        elif now - self._last >= 1:
            update_progress_artifact(self._artifact, self.percent, description=self.text)
        else:
            return
        self._last = now

    def finish(self, result: str) -> None:
        if self._artifact is not None:
            done = 100.0 if result in ("ran", "cached") else self.percent
            update_progress_artifact(self._artifact, done, description=f"{self._stage}: {result}")

    @property
    def percent(self) -> float:
        return round(100 * self._progress.share, 1)

    @property
    def text(self) -> str:
        return f"{self._stage}: {self._progress.text}"


def submit_in_order(
    stages: list[Stage],
    jobs: int,
    submit: Callable[[Stage, list[PrefectFuture]], PrefectFuture],
    look: Callable[[], None],
) -> dict[str, PrefectFuture]:
    """Submits each stage once all it reads from has ended, at most `jobs` at once; returns a finished future for each.

    A stage whose upstream failed is submitted too: Prefect then marks it as not ready, and it runs nothing.
    `look` is called every few seconds and may raise.
    """
    by_name = {stage.name: stage for stage in stages}
    sorter = TopologicalSorter({stage.name: [name for name in stage.upstream if name in by_name] for stage in stages})
    sorter.prepare()
    looked = time.monotonic()
    finished: queue.SimpleQueue[str] = queue.SimpleQueue()
    futures: dict[str, PrefectFuture] = {}
    ready: list[str] = []
    running: set[str] = set()
    while sorter.is_active():
        ready += sorter.get_ready()
        while ready and len(running) < jobs:
            name = ready.pop(0)
            futures[name] = submit(by_name[name], [futures[up] for up in by_name[name].upstream if up in futures])
            running.add(name)
            futures[name].add_done_callback(lambda future, name=name: finished.put(name))
        with suppress(queue.Empty):
            name = finished.get(timeout=SECONDS_BETWEEN_LOOKS)
            running.discard(name)
            sorter.done(name)
        if time.monotonic() - looked >= SECONDS_BETWEEN_LOOKS:
            look()
            looked = time.monotonic()
    return futures


class CancelledByUser(Exception):
    """Someone pressed Cancel; Prefect itself tells that only to runs which it started."""


def look_for_cancel() -> None:
    run = runtime.flow_run.id
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run).state
    if state is not None and (state.is_cancelling() or state.is_cancelled()):
        raise CancelledByUser


def tell(run: Run, stages: list[Stage]) -> None:
    """The table of stages, and the tables and charts of every report among them, as artifacts of this run."""
    rows = artifacts.stage_rows(stages, run.outcomes)
    create_table_artifact(table=rows, key="stages", description="What became of each stage, in the graph's order")
    for report in artifacts.reports(stages):
        name = report.relative_to(run.folder / "data") if report.is_relative_to(run.folder / "data") else report
        create_markdown_artifact(artifacts.results(report), key=f"results-{artifacts.slug(str(name))}")


planned: ContextVar[list[Stage] | None] = ContextVar("planned", default=None)
"""The graph as the command line has just read it; a run that the server starts reads it itself."""


@flow(name="polygrain", persist_result=False)
def reproduce(
    profile: str | None = None, targets: list[str] | None = None, jobs: int | None = None, workers: bool = False
) -> State:
    """Brings the graph up to date: the stages that are stale and all that follow from them, several at once."""
    run = Run(graph.folder_of(profile))
    if workers:
        run.dispatch = to_workers(profile, run.folder)
    everything = planned.get() or graph.load(run.folder)
    stages = graph.closure(everything, targets) if targets else everything
    todo = graph.to_do(stages)
    get_run_logger().info("%d of %d stages to do", len(todo), len(stages))
    try:
        submit_in_order(todo, jobs or default_jobs(), run.submit, look_for_cancel)
    except CancelledByUser:
        run.calls.stop()
        return Cancelled(message="cancelled; finished stages are kept, others continue from their checkpoints")
    except BaseException:
        run.calls.stop()
        raise
    for stage in todo:
        run.outcomes.setdefault(stage.name, Outcome("not run", 0.0, ()))
    lockfile.put_in_order(run.folder, [stage.name for stage in everything])
    tell(run, stages)
    return verdict(run, todo)


def to_workers(profile: str | None, folder: Path) -> Callable[[Stage, Event], State]:
    """What hands a stage to the workers, once all that is recorded here is where they can read it."""
    revision = pool.revision_of(folder)
    get_run_logger().info("%s", share.push(folder, None).splitlines()[0])
    return lambda stage, stopping: pool.dispatch(stage, profile, folder, revision, stopping)


def default_jobs() -> int:
    """Stages at once, few: each uses several cores itself."""
    return max(1, min(4, os.cpu_count() or 1))


def verdict(run: Run, todo: list[Stage]) -> State:
    """Completed, or Failed with the stages to blame, whose last lines are logged."""
    failed = [stage.name for stage in todo if run.outcomes[stage.name].result == "failed"]
    not_run = [stage.name for stage in todo if run.outcomes[stage.name].result == "not run"]
    if not failed:
        counts = Counter(run.outcomes[stage.name].result for stage in todo)
        words = ", ".join(f"{count} {result}" for result, count in counts.items()) or "nothing to do"
        return Completed(message=words)
    for name in failed:
        lines = "\n".join(run.outcomes[name].tail)
        get_run_logger().error("%s failed; its last lines:\n%s", name, lines)
    after = f"; not run, since they read from it: {', '.join(not_run)}" if not_run else ""
    return Failed(message=f"failed: {', '.join(failed)}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.flows", description=reproduce.__doc__)
    parser.add_argument("--profile", metavar="P", help="the graph of profiles/P; without it the repository's own")
    parser.add_argument("--targets", metavar="STAGE", nargs="+", help="only these and what they read from")
    parser.add_argument("--jobs", metavar="N", type=int, help=f"stages at once ({default_jobs()} on this machine)")
    parser.add_argument("--workers", action="store_true", help="on the machines that run `python -m pipeline.worker`")
    arguments = parser.parse_args()
    try:
        if arguments.jobs is not None and arguments.jobs < 1:
            raise ValueError(f"--jobs is {arguments.jobs}: give 1 or more")
        folder = graph.folder_of(arguments.profile)
        stages = graph.load(folder)
        todo = graph.to_do(graph.closure(stages, arguments.targets) if arguments.targets else stages)
        api = server.find(project(folder))
        if api is None and not todo:
            sys.stdout.write("Everything is up to date.\n")
            return
        if api is None:
            _, api = server.start(project(folder), server.free_port())
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    server.use(api)
    sys.stdout.write(f"Watch this run at {api.removesuffix('/api')}\n")
    sys.stdout.flush()
    planned.set(stages)
    try:
        state = reproduce(**vars(arguments), return_state=True)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.stdout.write(f"{state.name}: {state.message}\n")
    sys.exit(0 if state.is_completed() else 1)


if __name__ == "__main__":
    main()
