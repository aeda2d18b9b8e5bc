"""The page docs/faithful/claims.md, from the records and the kept numbers alone."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.claims.kept import Kept
from benchmarks.claims.records import PAPERS, Claim, Experiment, Line
from benchmarks.claims.verdict import Comparison, Numbers, compare


def number(value: float, sign: str = "", beside: float | None = None) -> str:
    """Two decimals, more where these are zero in a number and the one beside it, and no zero before the point."""
    is_large = not value or max(abs(value), abs(beside or 0)) >= 0.05
    return re.sub(r"^([+-]?)0\.", r"\1.", f"{value:{sign}{'.2f' if is_large else '.2g'}}")


def judge(line: Line, numbers: Numbers) -> tuple[str, str]:
    """Verdict and numbers of a line; of several comparisons those of the smallest with that verdict."""
    results: dict[str, Comparison] = {}
    for better, worse, of in line.comparisons():
        name = f"{better}, {of}" if worse == 0 else f"{better} less {worse}, {of}"
        if (result := compare(numbers, better, worse, of, line.lower, line.at_least)) is None:
            return "untested", f"no number of {name}"
        results[name] = result
    count = Counter(one.verdict for one in results.values())
    verdict = next(word for word in ("against", "open", "holds") if count[word])
    weakest = {name: one for name, one in results.items() if one.verdict == verdict}
    name, least = min(weakest.items(), key=lambda item: item[1].mean)
    text = number(least.mean, "+", least.error)
    text += "" if least.error is None else f" ± {number(least.error, beside=least.mean)}"
    if len(results) > 1:
        text = f"{', '.join(f'{n} {word}' for word, n in count.most_common())}: {text} ({name})"
    elif line.worse != (0,):
        text = f"{' against '.join(map(number, least.sides))}: {text}"
    text += f", bar {number(line.at_least, '+')}" * (line.at_least != 0)
    return verdict, f"{text}; {f'{least.seeds} seeds' if least.seeds > 1 else 'one seed'}"


def render(experiments: Mapping[str, Experiment], claims: Mapping[str, Claim], kept: Mapping[str, Kept]) -> str:
    rows = {}
    for name, claim in claims.items():
        lines = []
        for line in claim.measured:
            numbers = {
                of: by_seed for name in line.experiments if name in kept for of, by_seed in kept[name].numbers.items()
            }
            lines.append(judge(line, numbers) if numbers else ("untested", "not run yet"))
        rows[name] = lines or [("untested", claim.untested or "")]
    changed = {name: kept[name].changed(one.digests()) for name, one in experiments.items() if name in kept}
    folder = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True).get_template("page.md.j2")
    return page.render(papers=PAPERS, experiments=experiments, claims=claims, kept=kept, changed=changed, rows=rows)
