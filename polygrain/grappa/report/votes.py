"""The votes of a blind comparison: what its page exports, counted again.

`python -m polygrain.grappa.report.votes votes.csv` says it in one line.
"""

import argparse
import csv
import math
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ["task", "query", "shown_first", "vote", "winner"]
OTHER = {"encoder": "model", "model": "encoder"}
Z = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Tally:
    """Judgements by their winner; shares are fractions."""

    model: int
    encoder: int
    ties: int

    @property
    def judgements(self) -> int:
        return self.decided + self.ties

    @property
    def decided(self) -> int:
        return self.model + self.encoder

    @property
    def win_rate(self) -> float:
        """The model's share of what is decided; NaN where nothing is."""
        return self.model / self.decided if self.decided else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the win rate; 0 to 1 where nothing is decided."""
        spread = self.model * self.encoder / self.decided if self.decided else 0.0
        half = Z * math.sqrt(spread + Z**2 / 4)
        low, high = ((self.model + Z**2 / 2 + side) / (self.decided + Z**2) for side in (-half, half))
        return max(0.0, low), min(1.0, high)

    @property
    def p_value(self) -> float:
        """The exact two-sided sign test: a fair coin's chance to be at least as uneven; ties say nothing."""
        tail = sum(math.comb(self.decided, i) for i in range(min(self.model, self.encoder) + 1))
        return min(1.0, 2 * tail / 2**self.decided)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.judgements} judgements: model {self.model}, encoder {self.encoder}, ties {self.ties}; "
            f"the model wins {percent(self.win_rate)} of {self.decided} decided "
            f"(95 % interval {percent(low)} to {percent(high)}), sign test p {probability(self.p_value)}"
        )


def percent(share: float) -> str:
    """One decimal, half up as the page rounds."""
    return "–" if math.isnan(share) else f"{math.floor(1000 * share + 0.5) / 10:.1f} %"


def probability(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"= {math.floor(10000 * p + 0.5) / 10000:.4f}"


def winner(row: dict[str, str]) -> str:
    """Who wins by a row's vote; ValueError for a value that the page does not write."""
    first, vote = row["shown_first"], row["vote"]
    if first not in OTHER:
        raise ValueError(f"shown_first is {first!r:.80}, not encoder or model")
    winners = {"first": first, "second": OTHER[first], "equal": "tie"}
    if vote not in winners:
        raise ValueError(f"vote is {vote!r:.80}, not first, second or equal")
    if row["winner"] != winners[vote]:
        raise ValueError(f"winner is {row['winner']!r:.80}, but the vote says {winners[vote]}")
    return winners[vote]


def tally(file: Path) -> Tally:
    """Counts an exported file; ValueError, with line and value, where it is not what the page writes."""
    counts: Counter[str] = Counter()
    seen = set()
    # A spreadsheet may have put a byte order mark in front.
    with file.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines, strict=True)
        try:
            header = next(reader, [])
            if header != COLUMNS:
                raise ValueError(f"the header is {','.join(header)!r:.80}, not {','.join(COLUMNS)}")
            for fields in reader:
                if len(fields) != len(COLUMNS):
                    raise ValueError(f"{len(fields)} fields, not {len(COLUMNS)}: {','.join(fields)!r:.80}")
                row = dict(zip(COLUMNS, fields, strict=True))
                name = (row["task"], row["query"])
                if name in seen:
                    raise ValueError(f"a second vote on {name!r:.80}")
                seen.add(name)
                counts[winner(row)] += 1
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{file}, line {reader.line_num}: {error}") from error
    return Tally(counts["model"], counts["encoder"], counts["tie"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the votes of a blind comparison.")
    parser.add_argument("file", type=Path, help="the CSV file that the page exports")
    file = parser.parse_args().file
    try:
        print(tally(file))
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
