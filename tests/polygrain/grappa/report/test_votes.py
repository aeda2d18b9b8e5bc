import csv
import math
import sys

import pytest
from scipy.stats import binomtest

from polygrain.grappa.report import votes
from polygrain.grappa.report.votes import Tally

HEADER = "task,query,shown_first,vote,winner\n"


def written(tmp_path, text):
    file = tmp_path / "votes.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize("decided", [*range(1, 41), 1500])
def test_tally__interval_and_p_value_as_scipy_has_them(decided):
    for model in range(decided + 1) if decided < 100 else (0, 600, 700, 750, 1500):
        ours, theirs = Tally(model, decided - model, 3), binomtest(model, decided, 0.5)
        assert ours.win_rate == theirs.statistic
        assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
        assert ours.interval == pytest.approx(theirs.proportion_ci(method="wilson"), abs=1e-12)


def test_tally__nothing_decided():
    ties = Tally(0, 0, 3)
    assert ties.judgements == 3 and math.isnan(ties.win_rate) and ties.interval == (0, 1) and ties.p_value == 1
    assert "wins – of 0 decided (95 % interval 0.0 % to 100.0 %), sign test p = 1.0000" in str(ties)


def test_tally__in_one_line():
    assert str(Tally(14, 6, 10)) == (
        "30 judgements: model 14, encoder 6, ties 10; the model wins 70.0 % of 20 decided "
        "(95 % interval 48.1 % to 85.5 %), sign test p = 0.1153"
    )
    assert str(Tally(40, 0, 0)).endswith("p < 0.0001")


def test_percent__half_up():
    assert votes.percent(1 / 16) == "6.3 %"


def test_tally__every_vote_of_either_side(tmp_path):
    rows = [
        (first, vote, won)
        for first, second in (("model", "encoder"), ("encoder", "model"))
        for vote, won in (("first", first), ("second", second), ("equal", "tie"))
    ]
    file = tmp_path / "votes.csv"
    with file.open("w", newline="", encoding="utf-8-sig") as lines:
        csv.writer(lines).writerow(HEADER.strip().split(","))
        for i, row in enumerate(rows + rows[:1]):
            csv.writer(lines).writerow(['a,"b"\n', f"ä/{i}", *row])
    assert votes.tally(file) == Tally(model=3, encoder=2, ties=2)


def test_tally__no_votes(tmp_path):
    assert votes.tally(written(tmp_path, HEADER)) == Tally(0, 0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 0: the header is ''"),
        ("task;query;shown_first;vote;winner\n", "line 1: the header is 'task;query"),
        (HEADER + "a,b,model,first\n", "line 2: 4 fields, not 5: 'a,b,model,first'"),
        (HEADER + "\n", "line 2: 0 fields"),
        (HEADER + "a,b,Model,first,model\n", "line 2: shown_first is 'Model'"),
        (HEADER + "a,b,model,1,model\n", "line 2: vote is '1'"),
        (HEADER + "a,b,model,second,model\n", "line 2: winner is 'model', but the vote says encoder"),
        (HEADER + "a,b,model,equal,\n", "line 2: winner is '', but the vote says tie"),
        (HEADER + 2 * "a,b,model,equal,tie\n", r"line 3: a second vote on \('a', 'b'\)"),
        (HEADER + 'a,"b"c,model,equal,tie\n', "line 2: "),
        (HEADER + 'a,"b', "line 2: "),
        (HEADER + "a,b,model," + 10_000 * "x" + ",tie\n", "vote is 'x{79}, not"),
        (HEADER + "a,b,model," + 200_000 * "x" + ",tie\n", "field larger"),
        (HEADER.encode() + b"a,\xff,model,equal,tie\n", "can't decode byte 0xff"),
    ],
)
def test_tally__says_what_is_wrong(tmp_path, text, message):
    with pytest.raises(ValueError, match=r"votes\.csv, " + (message if message.startswith("line") else ".*" + message)):
        votes.tally(written(tmp_path, text))


def test_main__prints_the_line_or_what_is_wrong(tmp_path, monkeypatch, capsys):
    file = written(tmp_path, HEADER + "a,b,model,first,model\n")
    monkeypatch.setattr(sys, "argv", ["votes", str(file)])
    votes.main()
    assert capsys.readouterr().out == f"{Tally(1, 0, 0)}\n"
    file.write_text("nothing")
    with pytest.raises(SystemExit, match="the header is 'nothing'"):
        votes.main()
    file.unlink()
    with pytest.raises(SystemExit, match="No such file"):
        votes.main()
