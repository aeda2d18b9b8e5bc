"""What the pages and TensorBoard show of a stage while it runs: how far it is, and its curves."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from prefect import get_client, get_run_logger
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.client.schemas.actions import ArtifactUpdate

from pipeline import artifacts, curves, tensorboard
from pipeline.progress import Progress

SECONDS_BETWEEN_BARS, SECONDS_BETWEEN_CURVES = 1, 3
"""Every update is a row in the server's database."""


class Shown:
    """The artifacts of a stage, renewed in place; only stages long enough to tell how far they are have them.

    With `board` its curves are also written into that folder, for TensorBoard.
    """

    def __init__(self, stage: str, board: Path | None = None) -> None:
        self._stage, self._progress = stage, Progress()
        self._bar: UUID | None = None
        self._curves: UUID | None = None
        self._bar_at = self._curves_at = -math.inf
        self._writer = tensorboard.Writer(board, stage) if board else None

    def hear(self, line: str) -> None:
        """Takes in a line that the stage has written."""
        found = self._progress.hear(line)
        if found is None:
            return
        if self._writer is not None:
            with reported("curves"):
                self._writer.add(found)
        now = time.monotonic()
        if now - self._bar_at >= SECONDS_BETWEEN_BARS:
            self._bar_at = now
            self._show_bar(self._percent, f"{self._stage}: {self._progress.text}")
        if found and now - self._curves_at >= SECONDS_BETWEEN_CURVES:
            self._curves_at = now
            self._show_curves()

    def finish(self, result: str) -> None:
        """After its end; the curves stay, with their last values."""
        if self._bar is not None:
            self._show_bar(100.0 if result in ("ran", "cached") else self._percent, f"{self._stage}: {result}")
        if self._curves is not None:
            self._show_curves()
        if self._writer is not None:
            self._writer.close()

    # Hours of training must not end because a page could not be brought up to date.
    def _show_bar(self, percent: float, text: str) -> None:
        with reported("progress"):
            if self._bar is None:
                key = f"progress-{artifacts.slug(self._stage)}"
                self._bar = create_progress_artifact(percent, key=key, description=text)
            else:
                update_progress_artifact(self._bar, percent, description=text)

    def _show_curves(self) -> None:
        text = curves.markdown(self._stage, self._progress)
        with reported("curves"):
            if self._curves is None:
                key = f"curves-{artifacts.slug(self._stage)}"
                self._curves = create_markdown_artifact(text, key=key, description=f"{self._stage} while it trains")
            else:
                with get_client(sync_client=True) as client:
                    client.update_artifact(self._curves, ArtifactUpdate(data=text))

    @property
    def _percent(self) -> float:
        return round(100 * self._progress.share, 1)


@contextmanager
def reported(what: str) -> Iterator[None]:
    """A server that does not answer for a moment costs a warning, not the run."""
    try:
        yield
    except Exception as error:
        get_run_logger().warning("the server did not take or give %s: %s", what, error)
