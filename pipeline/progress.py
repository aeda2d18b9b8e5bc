"""How far a stage is, read from the lines that `stages/core/runner/progress.py` and `stages/core/training/loop.py`
log."""

import re
import time
from dataclasses import dataclass, field

# "epoch 3/7: 120 of 400, 22 s left, 12.3 batch/s"; "images: 500 of 1000, ..."; "epoch 3/7: loss 0.1234"
EPOCH = re.compile(r"\bepoch (\d+)/(\d+)\b")
COUNT = re.compile(r"\b(\d+) of (\d+)\b")
RATE = re.compile(r"\b[\d.]+ \S+/s\b")
RESUMED = re.compile(r"\bcontinues after epoch (\d+)\b")


@dataclass
class Progress:
    """Share done, and a sentence with epoch, rate and time left, as lines come in."""

    start: float = field(default_factory=time.monotonic)
    share: float = 0.0
    text: str = ""
    resumed: int = 0
    """Epochs that an earlier process finished; they cost this one no time."""

    def hear(self, line: str, now: float | None = None) -> bool:
        """Takes in a line; whether it told how far the stage is."""
        if met := RESUMED.search(line):
            self.resumed = int(met[1])
        epoch, count, rate = EPOCH.search(line), COUNT.search(line), RATE.search(line)
        if epoch is None and (count is None or rate is None):
            return False
        # A line with counts is from within its epoch; one with the epoch's loss is its end.
        within = min(int(count[1]) / max(int(count[2]), 1), 1.0) if count else 1.0
        number, total = (int(epoch[1]), max(int(epoch[2]), 1)) if epoch else (1, 1)
        self.share = min((number - 1 + within) / total, 1.0)
        words = [f"epoch {number} of {total}"] if epoch else []
        words += [f"{count[1]} of {count[2]}"] if count else []
        words += [rate[0]] if rate else []
        elapsed = (time.monotonic() if now is None else now) - self.start
        done = self.share - self.resumed / total
        words += [f"{duration(elapsed * (1 - self.share) / done)} left"] if done > 0 else []
        self.text = ", ".join(words)
        return True


def duration(seconds: float) -> str:
    """Seconds as people say them: 45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
