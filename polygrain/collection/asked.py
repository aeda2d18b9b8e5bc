"""The comparison that a user asks for, and the choice of one where nothing is asked."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from polygrain.collection.file import Facts
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing.comparison import FEWEST_CENTRED, Comparison, choose
from polygrain.collection.postprocessing.strength import FEWEST_SMOOTHED, SETTINGS

log = logging.getLogger(__name__)
# Length of the mean of centred rows from which a mean taken anew may pay.
MOVED = 0.1


@dataclass(frozen=True)
class Asked:
    """The user's settings of the comparison; an earlier file gives those that are not set."""

    task: str | None = None
    """a task of the model, as which they are compared"""
    alike: int | None = None
    """about how many show the same thing"""
    choose: bool = False
    """whatever an earlier file says of mean, smoothing and task"""
    smooth: bool = True
    """beside plain rows smoothed ones, where smoothing is chosen"""

    def completed(self, maker: Maker, root: Path, before: Facts | None, is_same: bool) -> "Asked":
        """These settings, completed by an earlier file of the same images and by the task with the folder `root`.

        ValueError for a task that the model does not know.
        """
        task, known = self.task or "", maker.comparisons
        if not task and before is not None and is_same and not self.choose:
            task = before.task if before.task in known.tasks else ""
            if before.task and not task:
                log.info("%s has no task %s any more; the images were compared as that task", maker, before.task)
        task = task or maker.task_of(root)
        known.of(task or None)
        return replace(self, task=task, alike=self.alike or (before.alike if before else None))

    def as_task(self, maker: Maker) -> Comparison | None:
        """The task's comparison; None without a task, and where the user gives another number of images alike."""
        comparison = maker.comparisons.tasks.get(self.task or "")
        return comparison if comparison and self.alike in (None, comparison.alike) else None

    def is_met(self, maker: Maker, before: Facts) -> bool:
        """Whether a file's metadata agree with these settings, for any number of images."""
        if self.choose or (self.task, self.alike) != (before.task, before.alike):
            return False
        expected = self.as_task(maker)
        if expected is not None:
            return before.comparison == expected
        return not self.task or before.comparison.mean == maker.comparisons.of(self.task).mean

    def compare(
        self, maker: Maker, vectors: Float32[np.ndarray, "row dim"], before: Facts | None
    ) -> tuple[Comparison, int]:
        """The comparison of vectors of the model, and the number of vectors from which it was chosen.

        It is that of the model's task, or the earlier one until `has_grown`. Else it is chosen from the vectors; few
        are centred on the model's mean in place of their own.
        """
        count, expected, known = len(vectors), self.as_task(maker), maker.comparisons
        if expected is not None:
            if before is None or before.comparison != expected:
                log.info("%s: %s, as the model's task %s", maker, expected, self.task)
            return expected, count
        again = ""
        if before is not None and self.is_met(maker, before):
            if not has_grown(before.count, count):
                self.warn_of_mean(before.comparison, vectors)
                return before.comparison, before.count
            earlier = f" in place of {before.count:,}" if before.count else ""
            again = f"chosen again, for {count:,} images{earlier}: "
        mean = known.default.mean if count < FEWEST_CENTRED else None
        if self.task:
            mean = known.of(self.task).mean
        comparison, chosen = choose(vectors, self.alike, SETTINGS, mean, maker.network.in_front)
        alike = f"; about {self.alike} images show the same thing" if self.alike else ""
        log.info("%s: %s%s: %s%s", maker, again, comparison, chosen.why, alike)
        return comparison, count

    def warn_of_mean(self, comparison: Comparison, vectors: Float32[np.ndarray, "row dim"]) -> None:
        if self.task or not comparison.mean or len(vectors) < FEWEST_CENTRED:
            return
        moved = float(np.linalg.norm(comparison.plain(vectors).mean(0)))
        if moved > MOVED:
            log.info("the mean of the images is now %.2f from the stored one: --choose stores the new mean", moved)


NOTHING = Asked()


def has_grown(before: int, now: int) -> bool:
    """Whether there are twice as many images, or at last enough for a mean of their own, or to smooth them."""
    return now >= 2 * before or before < FEWEST_CENTRED <= now or before < FEWEST_SMOOTHED <= now
