"""No value that reaches a command of dvc.yaml is more than a word there."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.hostile import shell

from polygrain.config import words

ROOT = Path(__file__).parents[3]
GRAPH, VALUES = words.read(ROOT / "dvc.yaml"), words.read(ROOT / "params.yaml")
REACHED = {name: is_quoted for name, _, is_quoted in words.reached(GRAPH, VALUES)}
METACHARACTERS = [
    "x; touch P",
    "$(touch P)",
    "`touch P`",
    "x | y",
    "x & y",
    "x > P",
    "x\ny",
    "'; touch P; '",
    "${root}",
    "-x",
]


def test_reached__sees_every_variable_of_every_command():
    for stage, spec in GRAPH["stages"].items():
        body = spec.get("do", spec)
        for place in words.PLACE.findall(body["cmd"]):
            found = list(words.reached({"stages": {stage: {**spec, **body, "do": {"cmd": f"${{{place}}}"}}}}, VALUES))
            assert found or not VALUES[spec["foreach"].strip("${}")], (stage, place)


def test_wrong__the_values_that_ship():
    assert words.wrong(GRAPH, VALUES) == []
    for file in sorted(ROOT.glob("profiles/*/params.yaml")):
        assert words.wrong(GRAPH, words.read(file)) == [], file


@pytest.mark.parametrize(("name", "where"), list(shell.made(GRAPH, VALUES)))
def test_wrong__metacharacters_in_every_value_and_name(name, where):
    for text in METACHARACTERS:
        for as_name in (False, True):
            if REACHED[name] and as_name:
                continue
            if REACHED[name] and text in ("x | y", "x & y", "x > P", "x; touch P"):
                continue  # plain characters between single quotes
            changed = shell.put(VALUES, **where, payload=text, as_name=as_name)
            if text in [value for _, value, _ in words.reached(GRAPH, changed)]:
                assert words.wrong(GRAPH, changed), (name, text, as_name)


@pytest.mark.parametrize("path", ["/a b/c", "../../données", "a;b", "a&b", "a*", "~", "(x)"])
def test_wrong__paths_in_quotes_hold_what_paths_hold(path):
    assert not words.wrong(GRAPH, shell.put(VALUES, ["tasks", "digits"], "path", path, as_name=False))


def test_wrong__says_what_to_do():
    changed = shell.put(VALUES, [], "root", ". ; touch P", as_name=False)
    (line,) = words.wrong(GRAPH, changed)
    assert line == (
        "  root is '. ; touch P', and a command takes it: use letters, digits and _ . / @ + -, and no - at the start"
    )


def test_main__before_dvc_reads_it(tmp_path):
    (tmp_path / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    text = (ROOT / "params.yaml").read_text().replace("path: encoders/vit48", "path: \"x'; touch P; '\"")
    (tmp_path / "params.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "polygrain.config.words", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1 and "encoder.path is \"x'; touch P; '\"" in done.stderr
