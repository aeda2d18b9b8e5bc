"""What became of one attack."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal["fine", "clear", "raw", "silent", "hang", "escape"]
VERDICTS = get_args(Verdict)
# A traceback, a wrong result without a word, no end, and anything read, written or run outside what it may.
FAILURES = ("raw", "silent", "hang", "escape")


@dataclass(frozen=True)
class Outcome:
    """fine: right result, or harmless and taken; clear: refused or left out with an error that says what and where."""

    case: str
    verdict: Verdict
    detail: str = ""


def count(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many were tried, and how many met each verdict."""
    counted = Counter(outcome.verdict for outcome in outcomes)
    return {"tried": counted.total()} | {verdict: counted[verdict] for verdict in VERDICTS}
