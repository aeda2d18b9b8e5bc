"""No variable of the Makefile runs anything, whatever it holds."""

import subprocess
from pathlib import Path

import pytest
from benchmarks.hostile import shell

METACHARACTERS = (
    "x; touch planted",
    "x$(shell touch planted)",
    "`touch planted`",
    "'; touch planted; '",
    "x\ntouch planted",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return shell.project(tmp_path_factory.mktemp("make"))


def make(place: Path, *words: str) -> str:
    return subprocess.run([shell.MAKE, "-s", *words], cwd=place, capture_output=True, text=True).stderr


@pytest.mark.parametrize("name", shell.variables((shell.ROOT / "Makefile").read_text()))
def test_make__metacharacters_in_every_variable(place, name):
    for value in METACHARACTERS:
        outcome = shell.call_make(place, "fetch", name, value, by_environment=False)
        assert outcome.verdict in ("fine", "clear"), outcome


def test_variables__all_that_are_documented():
    text = (shell.ROOT / "Makefile").read_text()
    assert {"PROFILE", "TARGETS", "JOBS", "PORT", "CRON", "REMOTE", "PYTHON", "STAGES", "PATH"} <= {
        *shell.variables(text)
    }


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("PROFILE=A", "PROFILE is 'A': give small letters, digits, - and _ only"),
        ("PROFILE=../x", "PROFILE is '../x': give small letters"),
        ("TARGETS=a --workers", "--workers begins with a -: give a name"),
        ("TARGETS=data/x", "TARGETS is 'data/x': give names of stages"),
        ("JOBS=two", "JOBS is 'two': give a whole number"),
        ("PORT=42 00", "PORT is '42 00': give a whole number"),
        ("CRON=x; y", "CRON is 'x;y': give five fields such as 0 2 * * *"),
    ],
)
def test_make__says_what_is_allowed(place, word, said):
    assert said in make(place, "repro", word)


def test_make__addresses_arrive_whole(place):
    address = "ssh://user@host:22/srv/a b;c$d'e\""
    make(place, "share", f"REMOTE={address}")
    called = (place / "called").read_text().split("\0")
    (place / "called").unlink()
    assert f"--remote={address}" in called
