"""Results for the team: `push` sends them, `fetch` brings them and runs nothing.

With the results travel the runs: what went into a stage and what came out. So a colleague gets the results of any run
of a stage with the same inputs, without its dvc.lock.
"""

import asyncio
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pipeline import dvc_api, graph, project
from polygrain.compute.counted import counted
from polygrain.config import compose

REMOTE = "team"
PATIENCE = 30  # seconds for an ssh host to answer


def dvc(folder: Path, *arguments: str, umask: int = -1) -> None:
    """Calls dvc, and lets the user see its bars and errors; ValueError where it fails."""
    quiet = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    done = subprocess.run([*dvc_api.DVC, *arguments], cwd=folder, umask=umask, **quiet)
    if done.returncode:
        raise ValueError(f"`dvc {' '.join(arguments)}` failed; its message stands above")


def use_remote(folder: Path, url: str | None) -> str:
    """The name of the remote to use; an address that is given becomes this clone's default. ValueError without any."""
    if url is not None:
        if not url.isascii():  # DVC would leave an empty configuration behind
            raise ValueError(f"the address of the remote is {url!r}: DVC takes ASCII only")
        with dvc_api.own_config(project(folder)) as config:
            config["remote"][REMOTE] = {"url": url, "verify": "true"}
            config["core"]["remote"] = REMOTE
    known = dvc_api.default_remote(project(folder))
    if known is None:
        raise ValueError("no remote is known: give --remote /folder, ssh://user@host/path or s3://bucket/prefix once")
    name, address = known
    require_known_host(address)
    return name


def share_with_group(folder: Path, remote: str) -> int:
    """Has DVC keep the default remote for a group, where it is a folder that its group may write; the umask for that.

    DVC's `shared` is about results alone, the umask about the runs beside them. -1: the user's own.
    """
    _, address = dvc_api.default_remote(project(folder))
    place = Path(address)
    if not (place.is_dir() and place.stat().st_mode & stat.S_IWGRP):
        return -1
    with dvc_api.own_config(project(folder)) as config:
        config["remote"].setdefault(remote, {})["shared"] = "group"
    return 0o002


def require_known_host(url: str) -> None:
    """ValueError for an ssh host whose key is not in the user's known_hosts: DVC itself takes any key."""
    address = urlsplit(url)
    if address.scheme != "ssh":
        return
    try:
        import asyncssh
    except ImportError as error:
        message = f"ssh://{address.hostname} needs asyncssh, which is not installed: pip install -e '.[share]'"
        raise ValueError(message) from error

    async def greet() -> None:
        # The host shows its key before the login, which never succeeds: no key is offered.
        how = {"client_keys": None, "agent_path": None, "password": None, "preferred_auth": "publickey"}
        async with asyncssh.connect(address.hostname, address.port or (), username="nobody", **how):
            pass

    try:
        asyncio.run(asyncio.wait_for(greet(), PATIENCE))
    except asyncssh.HostKeyNotVerifiable as error:
        host = f"{address.hostname}{f' -p {address.port}' if address.port else ''}"
        raise ValueError(
            f"the key of the ssh host {host} is not the one in your known_hosts ({error}): if it is new, or changed "
            f"on purpose, `ssh {host}` shows it"
        ) from error
    except (asyncssh.Error, OSError, TimeoutError):
        pass  # the key is known; or DVC will say what is wrong with the host


def push(folder: Path, url: str | None) -> str:
    """Sends every recorded result and run; what to tell the user.

    ValueError where the remote does not take all; another call sends the rest.
    """
    remote = use_remote(folder, url)
    stages = graph.load(folder)
    stale = [stage.name for stage in graph.to_do(stages)]
    tracked = [stage.name for stage in stages if stage.name.endswith(".dvc")]
    dvc(folder, "push", "--run-cache", "--remote", remote, "dvc.yaml", *tracked, umask=share_with_group(folder, remote))
    after = f"\nNot up to date, so not all of it is shared: {', '.join(stale)}" if stale else ""
    return f"The results of {len(stages) - len(stale)} {of_all(stages)} on the remote {remote!r}.{after}"


def of_all(stages: Sequence[graph.Stage]) -> str:
    return f"of {counted(len(stages), 'stage')} {'is' if len(stages) == 1 else 'are'}"


def fetch(folder: Path, url: str | None, targets: Iterable[str] = ()) -> str:
    """Brings the results of these stages and all they read, of all without targets; what to tell the user.

    Where none is shared for what a stage reads here, also if that is not here, it brings the one that dvc.lock names.
    ValueError names the stages that are left without a result.
    """
    remote = use_remote(folder, url)
    stages = graph.load(folder, targets)
    left = restore(folder, [stage.name for stage in graph.to_do(stages)], remote, or_recorded=True)
    if not left:
        whole = f"All {len(stages)} stages are" if len(stages) > 1 else "The only stage is"
        return f"{whole} up to date: there is nothing to run."
    told = [f"{len(stages) - len(left)} {of_all(stages)} up to date."]
    if gone := dict.fromkeys(path for _, paths in left.values() for path in paths):
        told.append(f"Not here, though stages read it: {', '.join(gone)}.")
    if named := [name for name, (is_named, _) in left.items() if is_named]:
        told.append(f"With the result that dvc.lock names, of other inputs or values than here: {', '.join(named)}.")
    if lacking := [name for name, (is_named, _) in left.items() if not is_named]:
        rest = f"`polygrain run` runs the rest; their results for these inputs are not shared: {', '.join(lacking)}"
        raise ValueError(" ".join([*told, rest]))
    return " ".join(told)


def restore(
    folder: Path,
    names: Iterable[str],
    remote: str,
    as_recorded: bool = False,
    force: bool = False,
    or_recorded: bool = False,
) -> dict[str, tuple[bool, list[str]]]:
    """Brings the results of these stages, sources first, and records them in dvc.lock; those not shared, by name.

    With `as_recorded` what dvc.lock says comes; then, and with `force`, whatever lies here. With `or_recorded` it comes
    where nothing else fits: the names are told with whether it came, and with the sources that are not here.
    ValueError: the remote handed out what is refused, or cannot be reached.
    """
    left, brought = {}, []
    with dvc_api.opened(folder) as repo:
        stages = graph.plan(repo, folder)
        try:
            for name in names:
                stage = stages[name]
                if stage.cmd is None:  # of `dvc add` or an import
                    if not pull(repo, stage, remote):
                        left[name] = False, []
                    continue
                entries = [dvc_api.entry_of(stage)] if as_recorded else shared(repo, stage, remote)
                if any(bring(repo, stage, entry, remote, as_recorded or force) for entry in entries):
                    brought.append(name)
                    continue
                deps = {dep.def_path: dep for dep in stage.deps}
                gone = [path for path, dep in deps.items() if not (compose.MADE.match(path) or dep.exists)]
                is_named = or_recorded and all(out.hash_info for out in stage.outs)
                came = is_named and bring(repo, stage, dvc_api.entry_of(stage), remote, force)
                left[name] = came, [os.path.normpath(folder / path) for path in gone]
        except (ValueError, dvc_api.DvcException):
            raise
        except Exception as error:  # ssh, S3 and file libraries have their own
            message = f"the remote {remote!r} did not give {name}: {type(error).__name__}: {error}"
            raise ValueError(message) from error
        finally:
            dvc_api.record(stages[name] for name in brought)
    return left


def shared(repo: Any, stage: Any, remote: str) -> Iterator[dict]:
    """Entries of dvc.lock that may hold the stage's result: its own, if it fits, then runs with the same inputs."""
    is_here = all(dep.exists for dep in stage.deps)
    if (is_here or stage.frozen) and dvc_api.is_recorded(stage):
        yield dvc_api.entry_of(stage)
    if is_here:
        yield from dvc_api.recorded_runs(repo, stage, remote)


def pull(repo: Any, stage: Any, remote: str) -> bool:
    """Brings what DVC tracks without a command; False if it is not here afterwards. What was changed here stays."""
    for output, file in dvc_api.bring_lists(repo, stage, remote).items():
        if file is not None:
            require_inside(file, output)
    return dvc_api.pull(repo, stage, remote)


def bring(repo: Any, stage: Any, entry: dict, remote: str, force: bool) -> bool:
    """Brings an entry's outputs into cache and workspace; False if the remote lacks some."""
    if {out["path"] for out in entry.get("outs", [])} != {out.def_path for out in stage.outs}:
        return False
    made = dvc_api.with_entry(repo, stage, entry)
    for output, file in dvc_api.bring_lists(repo, made, remote).items():
        if file is None:
            return False
        require_inside(file, output)
    return dvc_api.bring(repo, made, remote, force)


def require_inside(file: Path, output: str) -> None:
    """ValueError for a list of files that leads out of its output: DVC joins the paths in it to the output's."""
    try:
        for entry in json.loads(file.read_text(encoding="utf-8")):
            path = PurePosixPath(entry["relpath"])
            if path.is_absolute() or {"..", ".git", ".dvc"} & set(path.parts) or "\\" in str(path):
                raise ValueError(f"it names {str(path)!r}")
            if not re.fullmatch(r"[0-9a-f]{32}", entry["md5"]):
                raise ValueError(f"{entry['md5']!r:.100} is no md5")
    except (ValueError, KeyError, TypeError) as error:
        file.unlink()
        raise ValueError(f"the remote's list of the files in {output} is refused: {error}") from error
