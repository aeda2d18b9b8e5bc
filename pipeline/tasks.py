"""A task per stage: what it runs, and what the pages show of it meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from prefect import get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.states import Completed, Failed

from pipeline import artifacts, execution, remote
from pipeline.execution import Calls, Outcome
from pipeline.graph import Stage
from pipeline.progress import Progress


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

        try:
            outcome = self.elsewhere(stage, hear) if self.dispatch else self.here(stage, hear)
        except BaseException as error:
            self.outcomes[stage.name] = Outcome("failed", 0.0, (f"{type(error).__name__}: {error}",))
            raise
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
        lines = (state.message or str(state.name)).splitlines()
        hear(f"worker: {lines[0]}")
        if not state.is_completed():
            stopped = self.calls.stopping.is_set()
            return Outcome("stopped" if stopped else "failed", time.monotonic() - start, tuple(lines))
        remote.bring_run(self.folder, None, stage.name)
        restored = execution.reproduce(self.calls, self.folder, stage.name, 0, hear)
        result = "ran" if restored.result == "cached" and lines[0].startswith("ran") else restored.result
        return Outcome(result, time.monotonic() - start, restored.tail)


class Shown:
    """The progress artifact of a stage; only stages long enough to tell how far they are have one."""

    def __init__(self, stage: str) -> None:
        self._stage, self._progress, self._artifact, self._last = stage, Progress(), None, 0.0

    def hear(self, line: str) -> None:
        """Takes in a line; every update is a row in the server's database, so there is one a second at most."""
        if self._progress.hear(line) and (now := time.monotonic()) - self._last >= 1:
            self._last = now
            self._show(self.percent, f"{self._stage}: {self._progress.text}")

    def finish(self, result: str) -> None:
        if self._artifact is not None:
            self._show(100.0 if result in ("ran", "cached") else self.percent, f"{self._stage}: {result}")

    def _show(self, percent: float, text: str) -> None:
        # Hours of training must not end because a page could not be brought up to date.
        with reported("progress"):
            if self._artifact is None:
                key = f"progress-{artifacts.slug(self._stage)}"
                self._artifact = create_progress_artifact(percent, key=key, description=text)
            else:
                update_progress_artifact(self._artifact, percent, description=text)

    @property
    def percent(self) -> float:
        return round(100 * self._progress.share, 1)


@contextmanager
def reported(what: str) -> Iterator[None]:
    """A server that does not answer for a moment costs a warning, not the run."""
    try:
        yield
    except Exception as error:
        get_run_logger().warning("the server did not take or give %s: %s", what, error)
