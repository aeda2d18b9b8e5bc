"""The page docs/faithful/claims.md, from the records and the kept numbers alone."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.claims.kept import Kept
from benchmarks.claims.records import PAPERS, Claim, Experiment, Line
from benchmarks.claims.verdict import Comparison, compare, weakest


def number(value: float, sign: str = "") -> str:
    """Two decimals, more where these are zero, and no zero before the point."""
    text = f"{value:{sign}.2f}" if not value or abs(value) >= 0.05 else f"{value:{sign}.2g}"
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def difference(one: Comparison) -> str:
    return number(one.mean, "+") + ("" if one.error is None else f" ± {number(one.error)}")


def judge(line: Line, kept: Kept) -> tuple[str, str]:
    """Verdict and numbers of a line."""
    results: list[Comparison] = []
    for better, worse, of in line.comparisons():
        result = compare(kept.numbers, better, worse, of, line.lower, line.at_least)
        if result is None:
            return "untested", f"no number of {better} less {worse}, {of}"
        results.append(result)
    names = [f"{better} less {worse}, {of}" for better, worse, of in line.comparisons()]
    verdict, first = weakest([one.verdict for one in results]), min(results, key=lambda one: one.mean)
    text = f"smallest {difference(first)} ({names[results.index(first)]})"
    if len(results) == 1:
        text = difference(first)
        text = text if line.worse == 0 else f"{' against '.join(map(number, first.sides))}: {text}"
    else:
        count = Counter(one.verdict for one in results)
        text = ", ".join(f"{count[word]} {word}" for word in ("holds", "open", "against") if count[word]) + f"; {text}"
    bar = f", bar {number(line.at_least, '+')}" if line.at_least else ""
    return verdict, f"{text}{bar}; {f'{first.seeds} seeds' if first.seeds > 1 else 'one seed'}"


def render(experiments: Mapping[str, Experiment], claims: Mapping[str, Claim], kept: Mapping[str, Kept]) -> str:
    changed = {name: kept[name].changed(experiments[name].digests()) for name in experiments if name in kept}
    rows: dict[str, list[tuple[str, str]]] = {}
    for name, claim in claims.items():
        none = ("untested", "not run yet")
        rows[name] = [judge(line, kept[line.on]) if line.on in kept else none for line in claim.measured]
        rows[name] = rows[name] or [("untested", claim.untested or "")]
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True)
    return templates.get_template("page.md.j2").render(
        papers=PAPERS, experiments=experiments, claims=claims, kept=kept, changed=changed, rows=rows
    )
