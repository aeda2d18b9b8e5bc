"""A task per stage: what it runs, and what the pages show of it meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from prefect import allow_failure, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.states import Completed, Failed

from pipeline import execution, remote
from pipeline.execution import Calls, Outcome
from pipeline.graph import Stage
from pipeline.shown import Shown

DONE = ("ran", "cached")
Dispatch = Callable[[Stage, Event, Callable[[str], None]], State]


@dataclass
class Run:
    """One run of the flow: where, what is under way, and what became of each stage so far."""

    folder: Path
    dispatch: Dispatch | None = None
    """Has a worker elsewhere run a stage and share it, and hands on what it says; without it stages run here."""
    board: Path | None = None
    """Where curves for TensorBoard go."""
    calls: Calls = field(default_factory=Calls)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def submit(self, stage: Stage, upstream: list[PrefectFuture]) -> PrefectFuture:
        """A task for this stage, under the stage's own name and description."""
        retries = int(stage.meta.get("retries", 0))
        tags = ["gpu"] if stage.meta.get("gpu") else []
        plain = {"persist_result": False, "cache_policy": NO_CACHE, "retries": retries, "retry_delay_seconds": 5}
        made = task(lambda: self.reproduce(stage), name=stage.name, description=stage.desc, tags=tags, **plain)
        # Prefect would name what failed before by an id; `reproduce` names it by its stage.
        after = [allow_failure(future) for future in upstream]
        return made.with_options(task_run_name=stage.name).submit(wait_for=after)

    def reproduce(self, stage: Stage) -> State:
        """Runs the stage and tells Prefect what it writes and how far it is."""
        if lacking := self.lacking(stage):
            self.outcomes[stage.name] = Outcome("not run", 0.0, ())
            return Failed(name="NotReady", message=f"not run, since it reads from {', '.join(lacking)}")
        log, shown = get_run_logger(), Shown(stage.name, self.board)

        def hear(line: str) -> None:
            log.info("%s", line)
            shown.hear(line)

        try:
            outcome = self.elsewhere(stage, hear) if self.dispatch else self.here(stage, hear)
        except BaseException as error:
            self.outcomes[stage.name] = Outcome("failed", 0.0, (f"{type(error).__name__}: {error}",))
            shown.finish("failed")
            raise
        self.outcomes[stage.name] = outcome
        shown.finish(outcome.result)
        message = f"{outcome.result}, {outcome.seconds:.1f} s"
        if outcome.result in DONE:
            return Completed(name="Cached" if outcome.result == "cached" else "Completed", message=message)
        if stage.meta.get("retries"):
            # Prefect retries what raises, not what returns a failure; a failure that is returned reads better.
            raise RuntimeError(message)
        return Failed(message="\n".join([message, *outcome.tail]))

    def lacking(self, stage: Stage) -> list[str]:
        """What the stage reads from and this run did not make."""
        ended = {name: self.outcomes[name].result for name in stage.upstream if name in self.outcomes}
        return [f"{name} ({result})" for name, result in ended.items() if result not in DONE]

    def here(self, stage: Stage, hear: Callable[[str], None]) -> Outcome:
        return execution.reproduce(self.calls, self.folder, stage.name, int(stage.meta.get("gpu", 0)), hear)

    def elsewhere(self, stage: Stage, hear: Callable[[str], None]) -> Outcome:
        """Has a worker run the stage, then brings its result here, where dvc finds the worker's run and restores it."""
        start = time.monotonic()
        state = self.dispatch(stage, self.calls.stopping, hear)
        lines = (state.message or str(state.name)).splitlines()
        hear(f"worker: {lines[0]}")
        if not state.is_completed():
            stopped = self.calls.stopping.is_set()
            return Outcome("stopped" if stopped else "failed", time.monotonic() - start, tuple(lines))
        remote.bring_run(self.folder, None, stage.name)
        restored = execution.reproduce(self.calls, self.folder, stage.name, 0, hear)
        result = "ran" if restored.result == "cached" and lines[0].startswith("ran") else restored.result
        return Outcome(result, time.monotonic() - start, restored.tail)
