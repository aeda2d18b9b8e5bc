"""The page docs/faithful/claims.md, from the records and the kept numbers alone."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.claims.kept import Kept
from benchmarks.claims.records import PAPERS, Claim, Experiment, Line
from benchmarks.claims.verdict import Comparison, compare


def number(value: float, sign: str = "") -> str:
    """Two decimals, more where these are zero, and no zero before the point."""
    return re.sub(r"^([+-]?)0\.", r"\1.", f"{value:{sign}{'.2f' if not value or abs(value) >= 0.05 else '.2g'}}")


def judge(line: Line, kept: Kept) -> tuple[str, str]:
    """Verdict and numbers of a line."""
    results: dict[str, Comparison] = {}
    for better, worse, of in line.comparisons():
        name = f"{better} less {worse}, {of}"
        if (result := compare(kept.numbers, better, worse, of, line.lower, line.at_least)) is None:
            return "untested", f"no number of {name}"
        results[name] = result
    count = Counter(one.verdict for one in results.values())
    name, least = min(results.items(), key=lambda item: item[1].mean)
    text = number(least.mean, "+") + ("" if least.error is None else f" ± {number(least.error)}")
    if len(results) > 1:
        text = f"{', '.join(f'{word} {n}' for word, n in count.most_common())}; smallest {text} ({name})"
    elif line.worse != (0,):
        text = f"{' against '.join(map(number, least.sides))}: {text}"
    text += f", bar {number(line.at_least, '+')}" * (line.at_least != 0)
    verdict = next(word for word in ("against", "open", "holds") if count[word])
    return verdict, f"{text}; {f'{least.seeds} seeds' if least.seeds > 1 else 'one seed'}"


def render(experiments: Mapping[str, Experiment], claims: Mapping[str, Claim], kept: Mapping[str, Kept]) -> str:
    rows = {}
    for name, claim in claims.items():
        lines = [
            judge(line, kept[line.on]) if line.on in kept else ("untested", "not run yet") for line in claim.measured
        ]
        rows[name] = lines or [("untested", claim.untested or "")]
    changed = {name: kept[name].changed(one.digests()) for name, one in experiments.items() if name in kept}
    folder = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True).get_template("page.md.j2")
    return page.render(papers=PAPERS, experiments=experiments, claims=claims, kept=kept, changed=changed, rows=rows)
