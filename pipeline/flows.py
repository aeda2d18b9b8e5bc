"""The graph as a Prefect flow: one task per stage that is not up to date, edges from DVC alone.

Prefect adds parallel branches, pages to watch, retries (`meta: retries`) and limits (`meta: gpu`). What is stale, what
a stage reads and what a result is stays with DVC: tasks pass nothing on, and Prefect caches nothing.
"""

import os
import sys
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from threading import Thread

from prefect import flow, get_client, get_run_logger, runtime
from prefect.artifacts import (
    create_markdown_artifact,
    create_table_artifact,
)
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from pipeline import artifacts, gate, graph, guard, lockfile, order, pool, project, ready, secret, server, share
from pipeline import tensorboard as boards
from pipeline.execution import Outcome
from pipeline.graph import Stage
from pipeline.shown import reported
from pipeline.tasks import DONE, Dispatch, Run


class CancelledByUser(Exception):
    """Someone pressed Cancel; Prefect itself tells that only to runs which it started."""


def look_for_cancel() -> None:
    state = None
    with reported("the state of this run"), get_client(sync_client=True) as client:
        state = client.read_flow_run(runtime.flow_run.id).state
    if state is not None and (state.is_cancelling() or state.is_cancelled()):
        raise CancelledByUser


def tell(run: Run, stages: list[Stage]) -> None:
    """The table of stages, and the tables and charts of every report among them, as artifacts of this run."""
    rows = artifacts.stage_rows(stages, run.outcomes)
    create_table_artifact(table=rows, key="stages", description="What became of each stage, in the graph's order")
    for report in artifacts.reports(stages):
        name = report.relative_to(run.folder / "data") if report.is_relative_to(run.folder / "data") else report
        key = artifacts.slug(str(name))
        create_markdown_artifact((report / "table.md").read_text(encoding="utf-8"), key=f"results-{key}")
        if drawn := artifacts.charts(report):
            create_markdown_artifact(drawn, key=f"charts-{key}")


planned: ContextVar[list[Stage] | None] = ContextVar("planned", default=None)
"""The graph as the command line has just read it; a run that the server starts reads it itself."""


@flow(name="polygrain", persist_result=False)
def reproduce(
    profile: str | None = None,
    targets: list[str] | None = None,
    jobs: int | None = None,
    workers: bool = False,
    tensorboard: str | None = None,
) -> State:
    """Brings the graph up to date: the stages that are stale and all that follow from them, several at once."""
    run = Run(graph.folder_of(profile), board=boards.ready(Path(tensorboard)) if tensorboard else None)
    if workers:
        run.dispatch = to_workers(profile, run.folder)
    everything = planned.get() or graph.load(run.folder)
    stages = graph.closure(everything, targets) if targets else everything
    todo = graph.to_do(stages)
    get_run_logger().info("%d of %d stages to do", len(todo), len(stages))
    try:
        order.submit_in_order(todo, jobs or default_jobs(), run.submit, look_for_cancel)
    except CancelledByUser:
        return Cancelled(message="cancelled; finished stages are kept, others continue from their checkpoints")
    finally:
        run.calls.stop()
    for stage in todo:
        run.outcomes.setdefault(stage.name, Outcome("not run", 0.0, ()))
    lockfile.put_in_order(run.folder, [stage.name for stage in everything])
    with reported("the results"):
        tell(run, stages)
    return verdict(run, todo)


def to_workers(profile: str | None, folder: Path) -> Dispatch:
    """What hands a stage to the workers, once all that is recorded here is where they can read it."""
    revision = pool.revision_of(folder)
    get_run_logger().info("%s", share.push(folder, None).splitlines()[0])
    return lambda stage, stopping, hear: pool.dispatch(stage, profile, folder, revision, stopping, hear)


def default_jobs() -> int:
    """Stages at once, few: each uses several cores itself."""
    return max(1, min(4, os.cpu_count() or 1))


def verdict(run: Run, todo: list[Stage]) -> State:
    """Completed, or Failed with the stages to blame, whose last lines are logged."""
    results = {stage.name: run.outcomes[stage.name].result for stage in todo}
    failed = [name for name, result in results.items() if result not in (*DONE, "not run")]
    not_run = [name for name, result in results.items() if result == "not run"]
    if not failed and not not_run:
        counts = Counter(results.values())
        return Completed(message=", ".join(f"{count} {result}" for result, count in counts.items()) or "nothing to do")
    for name in failed:
        lines = "\n".join(run.outcomes[name].tail)
        get_run_logger().error("%s failed; its last lines:\n%s", name, lines)
    after = f"; not run, since they read from it: {', '.join(not_run)}" if not_run else ""
    return Failed(message=f"failed: {', '.join(failed)}{after}")


def main(
    profile: str | None = None,
    targets: list[str] | None = None,
    jobs: int | None = None,
    workers: bool = False,
    tensorboard: Path | None = None,
) -> None:
    """Runs the flow and ends the process: 0 all is up to date, 1 a stage failed, 130 or 143 it was stopped.

    Curves are also written into the folder `tensorboard`, where one is given.
    ValueError, before anything runs, names an unknown profile or stage and each wrong value of params.yaml.
    """
    guard.end_with_starter()
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs is {jobs}: give 1 or more")
    board = str(boards.ready(tensorboard)) if tensorboard else None
    folder = ready.make_ready(profile)
    stages = graph.load(folder)
    todo = graph.to_do(graph.closure(stages, targets) if targets else stages)
    if workers:
        pool.revision_of(folder)
        share.use_remote(folder, None)
    api = server.find(project(folder))
    patience = server.GONE_SECONDS
    if api is None and not todo:
        sys.stdout.write("Everything is up to date.\n")
        return
    if api is None:
        _, api = server.start(project(folder), server.free_port())
        patience = server.OWN_GONE_SECONDS
    key = secret.of(project(folder))
    server.use(api, key)
    Thread(target=server.end_without, args=[api, patience], daemon=True).start()
    sys.stdout.write(f"Watch this run at {server.link(api, key)}\n")
    if server.is_own(api, key):
        sys.stdout.write(f"Its curves, live, at {server.link(api, key, gate.LIVE)}\n")
    sys.stdout.flush()
    planned.set(stages)
    try:
        state = reproduce(profile, targets, jobs, workers, board, return_state=True)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.stdout.write(f"{state.name}: {state.message}\n")
    sys.exit(0 if state.is_completed() else 1)
