"""Results for the team: `push` sends them, `fetch` brings them.

The remote is a folder, ssh://user@host/path or s3://bucket/prefix; given once, it is kept in .dvc/config.local. With
the results travel the runs, so that a colleague gets a stage by what went into it, even without its line in dvc.lock.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from dvc.config import Config
from ruamel.yaml import YAML

from pipeline import graph, project
from pipeline import remote as remotes
from pipeline.execution import DVC
from pipeline.remote import NAME

# Nothing that an option, a second line of the configuration, or a shell could be made of.
UNSAFE = re.compile(r"^$|^-|[\x00-\x1f\x7f\"'`$\\;&|<>]")


def dvc(folder: Path, *arguments: str, bars: bool = False) -> subprocess.CompletedProcess[str]:
    """A call of dvc; with `bars` its progress, and all else it has for stderr, goes to the terminal where one is."""
    said = None if bars and sys.stderr.isatty() else subprocess.PIPE
    command = [*DVC, *arguments]
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=said, text=True, stdin=subprocess.DEVNULL)


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """What dvc says went wrong, in its own words."""
    if done.stderr is None:
        return "dvc says above what went wrong"
    errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "; ".join(dict.fromkeys(errors)) or done.stderr.strip()[-500:] or f"exit code {done.returncode}"


def use_remote(folder: Path, url: str | None) -> str:
    """Keeps the address for this clone if one is given; returns the name of the remote to use, or ValueError.

    It is no default remote of DVC, since plain commands would read lists of files from that, and believe them.
    """
    if url is not None:
        if UNSAFE.search(url):
            raise ValueError(f"the remote is {url!r}: give /folder, ssh://user@host/path or s3://bucket/prefix")
        done = dvc(folder, "remote", "add", "--local", "--force", NAME, url)
        if done.returncode:
            raise ValueError(f"{url!r} cannot be a remote: {reason(done)}")
    config = Config(project(folder) / ".dvc")
    if config["core"].get("remote") == NAME:
        with config.edit("local") as local:
            local["core"].pop("remote", None)
    known = config["core"].get("remote") or (NAME if NAME in config["remote"] else None)
    if known is None:
        raise ValueError(
            "no remote is known here: give --remote /folder, ssh://user@host/path or s3://bucket/prefix once"
        )
    return known


def push(folder: Path, url: str | None) -> str:
    """Sends every recorded result and run; what to tell the user. ValueError says what did not arrive."""
    remote = use_remote(folder, url)
    stages = graph.load(folder)
    stale = [stage.name for stage in graph.to_do(stages)]
    done = dvc(folder, "push", "--run-cache", "--remote", remote, "dvc.yaml", bars=True)
    if done.returncode:
        raise ValueError(
            f"the remote {remote!r} did not take everything: {reason(done)}\n{absent(folder, remote)}\n"
            "All results are kept here; `polygrain share` again sends the rest."
        )
    lines = [f"The results of {len(stages) - len(stale)} of {len(stages)} stages are on the remote {remote!r}."]
    if stale:
        lines.append(f"Not up to date here, so not all of it is shared: {', '.join(stale)}")
    return "\n".join(lines)


def absent(folder: Path, remote: str) -> str:
    """The outputs that the remote lacks; all of them if it cannot be asked."""
    lock = folder / "dvc.lock"
    recorded = YAML(typ="safe").load(lock.read_text(encoding="utf-8"))["stages"] if lock.exists() else {}
    digests = {out["path"]: out["md5"] for stage in recorded.values() for out in stage.get("outs", [])}
    asked = dvc(folder, "status", "--cloud", "--json", "--remote", remote, "dvc.yaml")
    missing = set(digests.values())
    if asked.returncode == 0:
        named = {path for path, state in json.loads(asked.stdout or "{}").items() if state in ("new", "missing")}
        # DVC names one of several outputs with the same content; a changed file of a folder stands for the folder.
        missing = {digest for path, digest in digests.items() if any(f"{one}/".startswith(f"{path}/") for one in named)}
    return f"Not pushed: {', '.join(path for path, digest in digests.items() if digest in missing)}"


def fetch(folder: Path, url: str | None, targets: list[str] | None = None) -> str:
    """Brings what the remote has for this clone's dvc.lock, and the runs; what to tell the user.

    With targets, only what these stages read: enough to work on them, `dvc repro --allow-missing` does the rest.
    """
    remote = use_remote(folder, url)
    if targets:
        stages = graph.load(folder)
        wanted = graph.chosen([stage.name for stage in stages], targets)
        inputs = sorted({name for stage in stages if stage.name in wanted for name in stage.upstream})
        pull(folder, remote, set(inputs))
        return f"Brought {', '.join(inputs)}. Next: .venv/bin/dvc repro --allow-missing {' '.join(targets)}"
    pull(folder, remote)
    stages = graph.load(folder)
    stale = restore(folder, remote, graph.to_do(stages))
    if not stale:
        return f"All {len(stages)} stages are up to date: there is nothing to run."
    return (
        f"{len(stages) - len(stale)} of {len(stages)} stages are up to date. `polygrain run` runs the rest, which "
        f"nobody has shared as it would be here: {', '.join(stale)}"
    )


def restore(folder: Path, remote: str, stages: list[graph.Stage]) -> list[str]:
    """Restores, in the graph's order, those that someone has run with what they read here; returns the others."""
    stale: list[str] = []
    for stage in stages:
        is_here = not set(stage.upstream) & set(stale) and remotes.bring_run(folder, remote, stage.name)
        if not is_here or dvc(folder, "repro", "--single-item", stage.name).returncode:
            stale.append(stage.name)
    return stale


def pull(folder: Path, remote: str | None, names: set[str] | None = None, force: bool = False) -> None:
    """Puts the recorded outputs of these stages, of all without names, into the workspace, once each is checked."""
    remotes.bring(folder, remote, names)
    targets = ["--allow-missing", "dvc.yaml"] if names is None else sorted(names)
    done = dvc(folder, "checkout", *(["--force"] if force else []), *targets, bars=True)
    if done.returncode:
        raise ValueError(f"the remote {remote!r} did not give everything: {reason(done)}")
