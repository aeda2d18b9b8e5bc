"""The graph as a Prefect flow: one task per stage that is not up to date, edges from DVC alone.

Prefect adds parallel branches and pages to watch. What is stale, what a stage reads and what
a result is stays with DVC: tasks pass nothing on, and Prefect caches nothing.
"""

import concurrent.futures
import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Semaphore, Thread

from prefect import allow_failure, flow, get_client, get_run_logger, runtime, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import TaskRunContext
from prefect.flow_engine import run_flow
from prefect.futures import PrefectConcurrentFuture
from prefect.states import Cancelled, Completed, Failed, Pending, Running
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.engine import emit_task_run_state_change_event

from pipeline import gpus, graph, project, server, share, stage_server
from pipeline.graph import Stage
from pipeline.prepare import ready
from pipeline.progress import StageProgress, reported, slug
from pipeline.run import Outcome, result, run_stage
from pipeline.workers import Dispatch, dispatcher, git, register
from polygrain.encoder.kept import keeping
from polygrain.runner import threads

SECONDS_BETWEEN_LOOKS = 3.0
"""Seconds between two looks whether the run was cancelled."""


class CancelledByUser(BaseException):
    """Cancel was pressed on the pages; Prefect stops only the runs that it started itself."""


@dataclass
class Run:
    """One run of the flow: where, how, and what became of each stage so far."""

    folder: Path
    jobs: int
    on_worker: Dispatch | None = None
    """Has a worker run the stage, and those that it can run after it; without it stages run here."""
    todo: list[Stage] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    stopping: Event = field(default_factory=Event)
    profile: str | None = None

    def __post_init__(self) -> None:
        self.free = Semaphore(self.jobs)

    def submit(self, stage: Stage, upstream: list[PrefectConcurrentFuture]) -> PrefectConcurrentFuture:
        """A task for this stage, which starts after those upstream, whatever became of them."""
        made = task(
            lambda: self.reproduce(stage),
            name=stage.name,
            task_run_name=graph.titled(self.profile, stage.name),
            tags=["gpu"] if stage.meta.get("gpu") else [],
            persist_result=False,
            cache_policy=NO_CACHE,
        )
        return made.submit(wait_for=[allow_failure(future) for future in upstream])

    def reproduce(self, stage: Stage) -> State:
        """Runs the stage once a job is free, and passes its output and progress to Prefect."""
        if stage.name in self.outcomes:  # a worker ran it after one that it reads from
            return self.state_of(self.outcomes[stage.name])
        results = {name: self.outcomes[name] for name in stage.upstream if name in self.outcomes}
        if lacking := [f"{name} ({outcome.result})" for name, outcome in results.items() if not outcome.is_done]:
            return self.left_out(stage, f"not run, since it reads from {', '.join(lacking)}")
        log, progress = get_run_logger(), StageProgress(stage.name)

        def on_line(line: str) -> None:
            log.info("%s", line)
            progress.add(line)

        log.info("why: %s", stage.why)
        show(Pending(name="Waiting", message=f"until a job is free, of {self.jobs}, and the GPUs that it asks for"))
        try:
            # The GPU first: a stage that waits for one must not take the job of one that needs none.
            with gpus.lent({} if self.on_worker else stage.meta, self.stopping) as shown, self.free:
                if self.stopping.is_set():
                    return self.left_out(stage, "not run: the run has been stopped")
                show(Running())
                if self.on_worker:
                    self.outcomes |= self.on_worker(self.chain(stage), self.stopping, on_line)
                    outcome = self.outcomes[stage.name]
                else:
                    environment = self.environment | shown
                    outcome = run_stage(self.folder, stage.name, on_line, self.stopping, environment)
        except Exception as error:
            outcome = Outcome("failed", 0.0, (f"{type(error).__name__}: {error}",))
        self.outcomes[stage.name] = outcome
        progress.finish(outcome.result)
        return self.state_of(outcome)

    def chain(self, stage: Stage) -> list[Stage]:
        """The stage and those that a worker can run after it in one start, which costs half a minute; in their order.

        Several that ask for a GPU are for several workers.
        """
        chain, waiting = [stage], {one.name for one in self.todo if one.name not in self.outcomes} - {stage.name}
        while True:
            names, needs_gpu = {one.name for one in chain}, bool(stage.meta.get("gpu"))
            free = [one for one in self.todo if one.name in waiting and not waiting.intersection(one.upstream)]
            free = [one for one in free if names.intersection(one.upstream) and bool(one.meta.get("gpu")) == needs_gpu]
            if not free or (needs_gpu and len(free) > 1):
                return chain
            chain += free
            waiting -= {one.name for one in free}

    def state_of(self, outcome: Outcome) -> State:
        """The outcome of a stage as Prefect's state of its task."""
        message = f"{outcome.result}, {outcome.seconds:.1f} s"
        if outcome.is_done:
            return Completed(name="Cached" if outcome.result == "cached" else "Completed", message=message)
        if outcome.result == "stopped":
            return Cancelled(message=f"{message}; training continues from its last epoch, other work begins anew")
        return Failed(message="\n".join([message, *outcome.tail]))

    def left_out(self, stage: Stage, message: str) -> State:
        """The state of a stage that did not run, which Prefect has for such: no failure."""
        self.outcomes[stage.name] = Outcome("not run")
        return Pending(name="NotReady", message=message)


def show(state: State) -> None:
    """Shows this state of the current task on the pages; its run time starts again."""
    if context := TaskRunContext.get():
        run = context.task_run
        before, run.state, run.start_time = run.state, state, state.timestamp
        emit_task_run_state_change_event(run, before, state)


def as_they_are(record: logging.LogRecord) -> bool:
    """Takes from Prefect's lines the exception that there is none of, and the rank of errors where none happened."""
    if record.exc_info == (None, None, None):
        record.exc_info = None
    if record.getMessage().startswith(("Finished in state NotReady", "Finished in state Cancelled")):
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


logging.getLogger("prefect.task_runs").addFilter(as_they_are)


@flow(name="polygrain", persist_result=False, task_runner=ThreadPoolTaskRunner(max_workers=1000))
def reproduce(
    profile: str | None = None, targets: list[str] | None = None, jobs: int | None = None, workers: bool = False
) -> State:
    """Brings a graph that is `ready` up to date: the stale stages and all that follow from them, several at once."""
    folder = graph.folder_of(profile)
    stages = graph.load(folder, targets or ())
    todo = graph.to_do(stages)
    # Few, since each uses several cores itself, but one for each GPU.
    jobs = jobs or max(min(4, threads.cores()), len(gpus.visible()))
    run = Run(folder, jobs, todo=todo, profile=profile)
    with reported("the tags of this run"), get_client(sync_client=True) as client:
        tags = [profile or "default graph", git(folder, "rev-parse", "--short", "HEAD")]
        client.update_flow_run(runtime.flow_run.id, tags=tags)
    if workers:
        get_run_logger().info("%s", share.push(folder, None).splitlines()[0])
        register()  # the first worker may start later than this run
        run.on_worker = dispatcher(profile, folder)
    futures: dict[str, PrefectConcurrentFuture] = {}
    kept, serving = keeping(folder, [stage.name for stage in todo]), stage_server.serving(project(folder), jobs)
    with kept, serving as run.environment:
        try:
            for stage in todo:
                futures[stage.name] = run.submit(stage, [futures[name] for name in stage.upstream if name in futures])
            wait([future.wrapped_future for future in futures.values()])
        except CancelledByUser:
            return Cancelled(message="cancelled; finished stages are kept, training continues from its last epoch")
        finally:
            run.stopping.set()
            run.free.release(1000)  # what waits for a free job gives up
            concurrent.futures.wait([future.wrapped_future for future in futures.values()])
    with reported("the results"):
        publish(run, stages)
    return verdict(run, todo)


def wait(futures: list[concurrent.futures.Future]) -> None:
    """Until all have ended; CancelledByUser where the run has been cancelled meanwhile."""
    while concurrent.futures.wait(futures, SECONDS_BETWEEN_LOOKS).not_done:
        with reported("the state of this run"), get_client(sync_client=True) as client:
            state = client.read_flow_run(runtime.flow_run.id).state
            if state.is_cancelling() or state.is_cancelled():
                raise CancelledByUser


def publish(run: Run, stages: list[Stage]) -> None:
    """The table of stages, and that of every report of the graph, as artifacts of this run."""
    results = {stage.name: run.outcomes.get(stage.name, Outcome("up to date")) for stage in stages}
    rows = [{"stage": name, "result": one.result, "seconds": round(one.seconds, 1)} for name, one in results.items()]
    create_table_artifact(table=rows, key="stages", description="What became of each stage, in the graph's order")
    for file in sorted(run.folder.glob("data/**/table.md")):
        text = f"{file.read_text(encoding='utf-8')}\n\nReport: `{file.with_name('index.html')}`"
        create_markdown_artifact(text, key=f"results-{slug(file.parent.name)}")


def verdict(run: Run, todo: list[Stage]) -> State:
    """Completed, or Failed with the stages to blame; their last lines are logged."""
    results = {stage.name: run.outcomes.get(stage.name, Outcome("not run")) for stage in todo}
    if all(outcome.is_done for outcome in results.values()):
        counts = Counter(outcome.result for outcome in results.values())
        return Completed(message=", ".join(f"{count} {result}" for result, count in counts.items()) or "nothing to do")
    not_run = [name for name, outcome in results.items() if outcome.result == "not run"]
    failed = [name for name, outcome in results.items() if not outcome.is_done and name not in not_run]
    for name in failed:
        get_run_logger().error("%s failed; its last lines:\n%s", name, "\n".join(results[name].tail))
    return Failed(
        message=f"failed: {', '.join(failed)}; not run, since they read from it: {', '.join(not_run) or 'none'}"
    )


def main(
    profile: str | None = None, targets: list[str] | None = None, jobs: int | None = None, workers: bool = False
) -> None:
    """Runs the flow and ends the process: 0 all is up to date, 1 a stage failed, 130 or 143 it was stopped.

    ValueError, before anything runs, names an unknown profile or stage and each wrong value of params.yaml.
    """
    folder = ready(profile)
    stages = graph.load(folder, targets or ())
    todo = graph.to_do(stages)
    if workers:
        dispatcher(profile, folder)  # names what is not committed, and a missing remote
    find = server.required if workers and todo else server.find  # a server of this run alone has no workers
    running, patience = find(project(folder)), server.GONE_SECONDS
    if running is None and not todo:
        sys.stdout.write("Everything is up to date.\n")
        return
    if running is None:
        _, running = server.start(project(folder), server.free_port())
        patience = server.OWN_GONE_SECONDS
    running.use()
    Thread(target=server.end_without, args=[running, patience], daemon=True).start()
    parameters = {"profile": profile, "targets": targets, "jobs": jobs, "workers": workers}
    # The pages can cancel only runs of a deployment.
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(reproduce), "terminal")
        words = [*(targets or ()), f"{len(todo)} of {len(stages)} stages", time.strftime("%d %b %H:%M")]
        named = {"parameters": parameters, "name": graph.titled(profile, ", ".join(words))}
        run = client.create_flow_run_from_deployment(deployment, state=Pending(), **named)
    sys.stdout.write(f"Watch this run at {running.link(run.id)}\n")
    sys.stdout.flush()
    try:
        state = run_flow(reproduce, run, parameters, return_type="state")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.stdout.write(f"{state.name}: {state.message}\n")
    if state.is_completed() and "report" in {stage.name for stage in todo} and (line := result(folder)):
        sys.stdout.write(f"\n{line}\n")
    sys.exit(0 if state.is_completed() else 1)
