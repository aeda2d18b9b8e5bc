"""Words with a meaning for a shell or for make, in variables of the Makefile and values of params.yaml.

A variable is given as an argument and by the environment, to every target that takes it, in a project whose programs
only write down how they were called. A value is put into every command of dvc.yaml that takes it. Nothing but the
programs that the Makefile and dvc.yaml name may run, and a word arrives whole or is refused.
"""

import copy
import itertools
import os
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hostile.outcome import Outcome
from stages.core.runner import words

COUNT = 3000
ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make") or "make"
PAYLOADS = (
    "x; touch planted",
    "x && touch planted",
    "x || touch planted",
    "x | touch planted",
    "x & touch planted",
    "x\ntouch planted",
    "$(touch planted)",
    "$$(touch planted)",
    "$(shell touch planted)",
    "x$(shell touch planted)",
    "${shell touch planted}",
    "$(eval X := $(shell touch planted))",
    "$(error out)",
    "`touch planted`",
    "'; touch planted; '",
    '"; touch planted; "',
    "' \"; touch planted; #",
    "x > planted",
    "< /etc/passwd",
    "x\\",
    "x #",
    "*",
    "~",
    "-x",
    "--help",
    "-o ProxyCommand=touch",
    "../../x",
    "/x y",
    "$HOME",
    "${root}",
    "$@",
    "%",
    "x y",
    "\x1b[2Jx",
    "x)",
    "(x",
    "{x,y}",
    "!x",
    "=x",
    ":x",
    "é",
    "",
)
TARGETS = ("install", "compose", "repro", "flow", "ui", "serve", "share", "fetch", "worker", "lint", "docs", "clean")
WHOLE = {
    **{(target, "REMOTE"): "--remote={}\0" for target in ("share", "fetch", "worker")},
    ("serve", "CRON"): "--cron={}\0",
}
"""Where a value may hold more than a name's characters, and the words it arrives as."""
STUB = """#!/bin/sh
printf '%s\\0' "$0" "$@" >> called
"""


def variables(makefile: str) -> list[str]:
    """All that the Makefile sets, documents or reads, those of make that steer commands, and one that nobody knows."""
    named = re.findall(r"^(?:override |export )*(?:define )?([A-Za-z_.]+) *[:?]?=?", makefile, re.M)
    used = re.findall(r"\$\((?:value )?([A-Z_]{3,})\)", makefile)
    documented = re.findall(r"\[([A-Z]+)=", makefile)
    own = {"override", "export", "install", "define", "endef"}
    return sorted({*named, *used, *documented, "SHELL", "CURDIR", "FOO"} - own - {".PHONY", "MAKEFLAGS"})


def project(folder: Path) -> Path:
    """The Makefile among programs that only write down how they were called."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("python", "dvc", "uv", "ruff"):
        (folder / ".venv/bin" / name).write_text(STUB)
        (folder / ".venv/bin" / name).chmod(0o755)
    (folder / "profiles/x").mkdir(parents=True)
    (folder / "profiles/x/dvc.yaml").write_text("")
    for name in ("dvc.yaml", "requirements.lock", ".venv/ready"):
        (folder / name).write_text("")
    return folder


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.name != "called"}


def call_make(place: Path, target: str, name: str, value: str, by_environment: bool) -> Outcome:
    case = f"make {target} {name}={value!r}" + (" by the environment" if by_environment else "")
    before = files(place)
    environment = {key: text for key, text in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    if by_environment:
        environment[name] = value
    command = [MAKE, "-s", target, *([] if by_environment else [f"{name}={value}"])]
    try:
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, timeout=60, errors="replace")
    except subprocess.TimeoutExpired:
        return Outcome(case, "hang")
    said = done.stderr.strip()[-300:]
    called = (place / "called").read_text() if (place / "called").exists() else ""
    (place / "called").unlink(missing_ok=True)
    if new := files(place) - before:
        for path in new:
            path.unlink()
        return Outcome(case, "escape", f"{sorted(map(str, new))}: {said}")
    if done.returncode:
        return Outcome(case, "clear" if "***" in said or "error: " in said else "raw", said)
    if value and (target, name) in WHOLE and WHOLE[target, name].format(value) not in called:
        return Outcome(case, "silent", called)
    return Outcome(case, "fine")


def made(graph: dict, values: dict) -> Iterator[tuple[str, dict]]:
    """Each value that a command takes, with what puts another in its place; the names of items are values too."""
    for name in sorted({name for name, _, _ in words.reached(graph, values)}):
        *way, last = name.split(".")
        yield name, {"way": way, "last": last}


def put(values: dict, way: list[str], last: str, payload: str, as_name: bool) -> dict:
    """The values with a payload in one place; as the name of the item, or as its value."""
    changed = copy.deepcopy(values)
    place = changed
    for key in way:
        place = place[key]
    if as_name:
        place[payload] = place.pop(last)
    else:
        place[last] = payload
    return changed


def call_command(graph: dict, values: dict, case: str, place: Path) -> Outcome:
    """Refused, or in every command one word for each that dvc.yaml writes."""
    if words.wrong(graph, values):
        return Outcome(case, "clear")
    for spec in graph["stages"].values():
        command = spec.get("do", spec)["cmd"]
        names = dict.fromkeys(match[1] for match in words.PLACE.finditer(command))
        rows = {
            key: [value for _, value, _ in words.reached({"stages": {"s": only(spec, key)}}, values)] for key in names
        }
        for row in zip(*rows.values(), strict=False):
            text = command
            for key, value in zip(rows, row, strict=True):
                text = text.replace(f"${{{key}}}", str(value))
            done = subprocess.run(
                ["sh", "-c", f"printf '%s\\0' {text}"], cwd=place, capture_output=True, text=True, timeout=60
            )
            if any(place.iterdir()):
                return Outcome(case, "escape", text)
            if len(done.stdout.split("\0")) - 1 != len(shlex.split(command)):
                return Outcome(case, "silent", text)
    return Outcome(case, "fine")


def only(spec: dict, key: str) -> dict:
    """The stage with one variable in its command."""
    return {**({"foreach": spec["foreach"]} if "foreach" in spec else {}), "do": {"cmd": f"'${{{key}}}'"}}


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    place, empty = project(folder / "project"), folder / "empty"
    empty.mkdir()
    names = variables((place / "Makefile").read_text())
    makes = [
        (*case, by_environment)
        for *case, by_environment in itertools.product(TARGETS, names, PAYLOADS, (False, True))
        if not (case[1] == "PATH" and by_environment)  # which is where the shell itself looks
    ]
    graph, values = words.read(ROOT / "dvc.yaml"), words.read(ROOT / "params.yaml")
    values = {**values, "supervised_models": {"x": {"on": "all", "how": "full"}}, "mrt": {"tables": "evaluation"}}
    values["baselines"] = {"one_set": "features"}
    commands = list(itertools.product(made(graph, values), PAYLOADS, (False, True)))
    draw = random.Random(seed)
    draw.shuffle(makes)
    draw.shuffle(commands)
    for target, name, payload, by_environment in makes[: count * 2 // 3]:
        yield call_make(place, target, name, payload, by_environment)
    for (name, where), payload, as_name in commands[: count - count * 2 // 3]:
        case = f"{name} {'named' if as_name else 'is'} {payload!r}"
        try:
            changed = put(values, **where, payload=payload, as_name=as_name)
        except (KeyError, TypeError):
            continue
        yield call_command(graph, changed, case, empty)
