import json
import re
import sys
from itertools import product
from pathlib import Path
from statistics import mean, variance

import numpy as np
import pytest

from benchmarks.claims import __main__ as command
from benchmarks.claims import graph_runs, kept, readers, records, upstream
from benchmarks.claims.page import number, render
from benchmarks.claims.verdict import Numbers, compare, values_of
from polygrain.store import imports
from polygrain.store.tables import write_csv

RECORDS = Path(records.__file__).parent
TOY = """
experiments:
  drawn: {title: drawn, target: images, reader: lines, seeds: [0, 1, 2]}
  photographs: {title: photographs, target: images, reader: lines, needs: [no/such/folder], fetch: bring them}
claims:
  - name: better
    where: Table 1
    claim: one beats another
    paper: "+2"
    quantity: points
    measured:
      - {on: drawn, better: one, worse: another, of: [mean, digits]}
      - {on: photographs, better: one, worse: another}
"""


def by_hand(ours: list[float], theirs: list[float], errors: list[float | None], bar: float) -> str:
    """The rule, said slowly: two standard errors beyond the bar."""
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    if len(gaps) == 1 and None in errors:
        return "open"
    squared = errors[0] ** 2 + errors[1] ** 2 if len(gaps) == 1 else variance(gaps) / len(gaps)
    if mean(gaps) - bar > 2 * squared**0.5:
        return "holds"
    return "against" if mean(gaps) - bar < -2 * squared**0.5 else "open"


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_compare__equals_the_slow_rule(seeds):
    random, verdicts = np.random.default_rng(seeds), set()
    for bar, lower, known in product((-1.0, 0.0, 0.5), (False, True), (False, True)):
        for shift in (-2.0, -0.5, 0.0, 0.5, 2.0):
            ours, theirs = (random.normal(of, 0.7, seeds).tolist() for of in (shift, 0))
            errors = [0.1, 0.2 if known else None]
            sides = zip(("a", "b"), (ours, theirs), errors, strict=True)
            numbers = {(name, "mean"): {i: (x, e) for i, x in enumerate(of)} for name, of, e in sides}
            signs = [[-x for x in of] for of in (ours, theirs)] if lower else [ours, theirs]
            verdict = by_hand(*signs, errors, bar)
            assert compare(numbers, "a", "b", "mean", lower, bar).verdict == verdict
            verdicts.add(verdict)
    assert verdicts == {"holds", "against", "open"}


def test_compare__known_cases():
    numbers: Numbers = {
        ("a", "mean"): {0: (3.0, None), 1: (3.2, None), 2: (3.1, None)},
        ("b", "mean"): {0: (1.0, None), 2: (1.0, None), 3: (9.0, None)},
        ("exact", "mean"): {0: (1.0, 0.0)},
    }
    paired = compare(numbers, "a", "b", "mean")
    assert (paired.verdict, paired.seeds, paired.mean, paired.sides) == ("holds", 2, pytest.approx(2.05), (3.05, 1))
    assert compare(numbers, "b", "a", "mean").verdict == "against"
    assert compare(numbers, "exact", 0.5, "mean").verdict == "holds"
    assert compare(numbers, "exact", 1, "mean").verdict == "open"  # equal
    assert compare(numbers, "exact", "a", "mean").verdict == "open"  # one seed without an error
    assert compare(numbers, "a", "none", "mean") is compare(numbers, "none", 0, "mean") is None


def test_sides__that_are_chosen():
    """`own` and `one` are chosen with the other seeds, so never by the number that they give."""
    numbers: Numbers = {
        ("a", "cars"): {0: (5.0, None), 1: (1.0, None), 2: (1.0, None)},
        ("b", "cars"): {0: (2.0, 0.3), 1: (3.0, None), 2: (2.5, None)},
        ("a", "mean"): {0: (9.0, None), 1: (9.0, None), 2: (9.0, None)},
        ("b", "mean"): {0: (1.0, None), 1: (1.0, None), 2: (1.0, None)},
    }
    assert {seed: value for seed, (value, _) in values_of(numbers, "best of a, b", "cars").items()} == {
        0: 5,
        1: 3,
        2: 2.5,
    }
    assert {seed: value for seed, (value, _) in values_of(numbers, "own of a,b", "cars").items()} == {0: 2, 1: 1, 2: 1}
    assert values_of(numbers, "one of a, b", "cars") == numbers["a", "cars"]
    assert values_of(numbers, "one of a, b", "cars", lower=True) == numbers["b", "cars"]
    means = {("a", "food"): {0: (1.0, None), 1: (1.0, None)}, ("b", "food"): {0: (3.0, None), 1: (5.0, None)}} | numbers
    assert values_of(means, "best of a, b", "mean of cars, food") == {0: (4.0, None), 1: (4.0, None)}
    assert values_of({("a", "cars"): {0: (1.0, None)}, ("b", "cars"): {0: (1.0, None)}}, "own of a, b", "cars") == {}


def test_line__compares_all_sides_or_pairs_of_lists():
    line = {"on": "drawn", "better": ["a", "b"], "worse": ["c", 0], "of": ["x", "y"]}
    plain = [(a, c, of) for a in "ab" for c in ("c", 0) for of in "xy"]
    assert [*records.Line(**line).comparisons()] == plain
    assert [*records.Line(**line, pairs=True).comparisons()] == [("a", "c", "x"), ("b", 0, "y")]


def test_number__is_short():
    assert [number(x, "+") for x in (2.345, -0.5, 0.0, 0.00012, 12)] == ["+2.35", "-.50", "+.00", "+.00012", "+12.00"]
    assert [number(-0.0072, beside=1.05), number(0.0072, beside=0.01)] == ["-.01", ".0072"]


def test_page__is_what_the_table_gives():
    text = render(*records.read(RECORDS), kept.read(command.CSV))
    assert text == command.PAGE.read_text(), "run `python -m benchmarks.claims --page`: a stage or a record has changed"


STAGE = '''"""What it does."""
from pathlib import Path
from polygrain.tool import twice


def main(output: Path) -> str:
    """More."""
    return twice("x")  # why
'''
TREE = {
    "stages/first.py": STAGE,
    "stages/second.py": STAGE,
    "stages/third.py": STAGE,
    "polygrain/tool.py": "def twice(text):\n    return text + text\n",
    "dvc.yaml": """
stages:
  first:
    foreach: ${tasks}
    do: {cmd: a, deps: ['${root}/stages/first.py'], params: [first, 'tasks.${key}'], outs: ['data/first/${key}']}
  second: {cmd: a, deps: [data/first], params: [seed, second.width], outs: [data/second]}
  third: {cmd: a, deps: [data/second], params: [third], outs: [data/third]}
""",
}
VALUES = {"root": ".", "seed": 0, "tasks": {"digits": {}}, "first": {}, "second": {"width": 1, "depth": 1}, "third": {}}


@pytest.mark.parametrize(
    ("changes", "values", "changed"),
    [
        ({"stages/first.py": STAGE.replace("# why", "# another reason")}, {}, []),
        ({"stages/first.py": STAGE.replace("More.", "Less.").replace('("x")', '(\n        "x",\n    )')}, {}, []),
        ({"stages/first.py": STAGE.replace('"x"', '"y"')}, {}, ["first"]),
        ({"stages/third.py": STAGE.replace('"x"', '"y"')}, {}, []),  # nothing of it is read
        ({"polygrain/tool.py": "def twice(text):\n    return text * 2\n"}, {}, ["first", "second"]),
        ({}, {"seed": 1}, []),
        ({}, {"second": {"width": 1, "depth": 2}}, []),
        ({}, {"second": {"width": 2, "depth": 1}}, ["second"]),
        ({}, {"tasks": {"glyphs": {}}}, ["first"]),
    ],
)
def test_changed__names_stages_whose_code_or_values_differ(tmp_path, monkeypatch, changes, values, changed):
    digests = []
    for name, files, given in (("before", TREE, VALUES), ("after", TREE | changes, VALUES | values)):
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
        monkeypatch.setattr(imports, "ROOT", tmp_path / name)
        digests.append(upstream.digests(given, ["second"]))
    kept.add(table(tmp_path), "drawn", 0, [("one", "mean", 1.0, None)], digests[0], "abc")
    assert kept.read(tmp_path / "claims.csv")["drawn"].changed(digests[1]) == changed


def table(folder: Path) -> Path:
    write_csv(folder / "claims.csv", [kept.FIELDS])
    return folder / "claims.csv"


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Path:
    """The command over two toy experiments, whose runs give small numbers."""
    for paper in records.PAPERS:
        (tmp_path / f"{paper}.yaml").write_text(TOY if paper == "tll" else "{experiments: {}, claims: []}")
    read = records.read
    monkeypatch.setattr(records, "read", lambda _: read(tmp_path))
    monkeypatch.setattr(command, "CSV", table(tmp_path))
    monkeypatch.setattr(command, "PAGE", tmp_path / "claims.md")
    monkeypatch.setattr(command, "copy_repository", lambda target: (target / ".git").mkdir())
    return tmp_path


def call(*words: str) -> str | None:
    sys.argv = ["benchmarks.claims", *words]
    return command.main()


def test_command__goes_on_where_it_was_killed(toy, monkeypatch, capsys):
    runs = []

    def measure(experiment, seed, copy):
        runs.append(seed)
        if runs == [0, 1]:
            raise KeyboardInterrupt
        return [("one", name, 3.0 + seed, None) for name in ("mean", "digits")] + [("another", "mean", 1.0, 0.5)]

    monkeypatch.setattr(command, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        call()
    assert [*kept.read(command.CSV)["drawn"].commits] == [0] and not command.PAGE.exists()
    assert call() is None and runs == [0, 1, 1, 2]
    assert "photographs: untested, no/such/folder is missing: bring them" in capsys.readouterr().out
    assert call("drawn") is None and call("--page") is None and runs == [0, 1, 1, 2]
    assert call("tll/better", "--seeds", "1", "--again") is None and runs == [0, 1, 1, 2, 1]
    page = command.PAGE.read_text()
    assert "| untested | no number of one less another, digits | drawn, " in page
    assert "|  | untested | not run yet | photographs |  |" in page and "| photographs: bring them |" in page


def test_command__other_runs_go_on_where_one_fails(toy, monkeypatch):
    def measure(experiment, seed, copy):
        if seed == 1:
            raise graph_runs.subprocess.CalledProcessError(1, "dvc")
        return [(side, of, 3.0 - len(side) + seed, None) for side in ("one", "another") for of in ("mean", "digits")]

    monkeypatch.setattr(command, "measure", measure)
    assert call("drawn").startswith("drawn, seed 1: ")
    assert "| holds | 2 holds: +4.00 ± .00 (one less another, mean); 2 seeds |" in command.PAGE.read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("target: images", "target: imagez", r"unknown stage 'imagez'; known: images, encoder, "),
        ("target: images", "target: images@cars", r"unknown item of images 'cars'; known: digits, "),
        ("target: images", "profile: mrtx, target: images", r"unknown profile 'mrtx'; known: .*mrt"),
        ("target: images", "command: benchmarks.nothing", r"no module benchmarks.nothing"),
        ("reader: lines", "reader: rows", r"unknown reader 'rows'; known: evaluation, "),
        ("on: drawn", "on: print", r"unknown experiment 'print'; known: drawn, photographs"),
        ("seeds: [0, 1, 2]", "seed: 0", r"experiments.drawn .*unknown key 'seed'; known: title, "),
        ("better: one", "better: one, pairs: perhaps", r"claims.0.measured.0.pairs is 'perhaps'"),
    ],
)
def test_command__refuses_what_it_does_not_know(toy, old, new, message):
    (toy / "tll.yaml").write_text(TOY.replace(old, new, 1))
    assert re.search(message, call())


def test_command__refuses_an_unknown_name(toy):
    assert call("tll/bettr") == (
        "error: unknown claim or experiment 'tll/bettr'; known: tll/better, drawn, photographs"
    )


def write(file: Path, content: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


def test_readers__take_what_stages_write(tmp_path):
    tasks = {"cars": {}, "food": {"unseen": False}, "dtd": {"unseen": True}}
    write(tmp_path / "params.yaml", {"tasks": tasks})
    scores = {"cars": 0.25, "food": 0.75, "dtd": 0.5}
    write(tmp_path / "data/evaluation/encoder/metrics.json", {k: {"r_precision": v} for k, v in scores.items()})
    rows = {of: value for _, of, value, _ in readers.evaluation(tmp_path, without=("food",))}
    assert rows == {"mean": 50, "unseen": 50, "mean without food": 25, "cars": 25, "food": 75, "dtd": 50}
    form = {"map_at_r": {"mean": 0.1, "std": 0.0}}
    write(
        tmp_path / "data/gsp_ensemble/collage/metrics.json", {"gap": {"single": form, "separate": form, "concat": form}}
    )
    assert [*readers.gsp(tmp_path)] == [("gap", "map_at_r", 10, None), ("gap", "map_at_r concat", 10, None)]
    measures = {"linear": 0.5, "alignment": 0.5, "images": 9}
    parts = {"start": {"cars": measures}, "trained": {"cars": measures, "food": measures | {"linear": 1.0}}}
    write(tmp_path / "data/mpcl_probe/heads1/metrics.json", parts)
    found = {(side, of): value for side, of, value, _ in readers.mpcl(tmp_path)}
    assert found["heads1", "linear"] == 75 and found["heads1 start", "alignment"] == 0.5
    (tmp_path / "output.jsonl").write_text('warm\n{"way": "a", "k": 5, "ms": 2, "sd": 1}\n{"way": "b"}\n')
    assert [*readers.lines(tmp_path, side="{way}", quantity="at {k}", value="ms", error="sd")] == [("a", "at 5", 2, 1)]


@pytest.mark.slow
def test_measure__runs_the_graph_and_forgets_another_run(tmp_path):
    graph_runs.copy_repository(tmp_path)
    write(tmp_path / "data/images/old/metrics.json", {})
    assert graph_runs.measure(records.Experiment(title="", target="images@digits", reader="mpcl"), 1, tmp_path) == []
    assert [path.name for path in (tmp_path / "data/images").iterdir() if path.is_dir()] == ["digits"]
    assert "seed: 1" in (tmp_path / "params.yaml").read_text()
