"""Results for the team: `push` sends them, `fetch` brings them and runs nothing.

With the results travel the runs: what went into a stage and what came out. So a colleague gets the results of whoever
ran a stage with the same inputs, without a dvc.lock from there.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from dvc.config import Config
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.stage import PipelineStage, create_stage
from dvc.stage.cache import _can_hash, _get_stage_hash
from dvc.stage.loader import StageLoader
from dvc.stage.serialize import to_single_stage_lockfile

from pipeline import graph, project

REMOTE = "team"
PATIENCE = 30  # seconds for an ssh host to answer


def dvc(folder: Path, *arguments: str) -> None:
    """A call of dvc, whose bars and errors the user sees; ValueError where it fails."""
    done = subprocess.run([*graph.DVC, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ValueError(f"`dvc {' '.join(arguments)}` failed; what it says stands above")


def use_remote(folder: Path, url: str | None) -> str:
    """The name of the remote to use; an address that is given becomes this clone's default. ValueError without any."""
    if url is not None:
        if not url.isascii():  # DVC would leave an empty configuration behind
            raise ValueError(f"the address of the remote is {url!r}: DVC takes ASCII only")
        dvc(folder, "remote", "add", "--local", "--default", "--force", "--", REMOTE, url)
        dvc(folder, "remote", "modify", "--local", REMOTE, "verify", "true")
    config = Config(project(folder) / ".dvc")
    name = config["core"].get("remote")
    if name is None:
        raise ValueError("no remote is known: give --remote /folder, ssh://user@host/path or s3://bucket/prefix once")
    require_known_host(config["remote"][name]["url"])
    return name


def require_known_host(url: str) -> None:
    """ValueError for an ssh host whose key is not in the user's known_hosts: DVC itself takes any key."""
    address = urlsplit(url)
    if address.scheme != "ssh":
        return
    try:
        import asyncssh
    except ImportError as error:
        raise ValueError(f"{url} needs asyncssh, which is not installed: pip install -e '.[share]'") from error

    async def greet() -> None:
        # The host shows its key before anybody logs in, and nobody does: there is no key to log in with.
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
    dvc(folder, "push", "--run-cache", "--remote", remote, "dvc.yaml")
    after = f"\nNot up to date, so not all of it is shared: {', '.join(stale)}" if stale else ""
    return f"The results of {len(stages) - len(stale)} of {len(stages)} stages are on the remote {remote!r}.{after}"


def fetch(folder: Path, url: str | None, targets: Iterable[str] = ()) -> str:
    """Brings the results of these stages and all they read, of all without targets; what to tell the user."""
    remote = use_remote(folder, url)
    stages = graph.load(folder, targets)
    lacking = restore(folder, [stage.name for stage in graph.to_do(stages)], remote)
    if not lacking:
        return f"All {len(stages)} stages are up to date: there is nothing to run."
    rest = f"`polygrain run` runs the rest, which nobody has shared as it would be here: {', '.join(lacking)}"
    return f"{len(stages) - len(lacking)} of {len(stages)} stages are up to date. {rest}"


def restore(folder: Path, names: Iterable[str], remote: str, as_recorded: bool = False) -> list[str]:
    """Brings the results of these stages, sources first, and records them in dvc.lock; the names of those not shared.

    With `as_recorded` what dvc.lock says comes, whatever lies here. ValueError: the remote handed out what is refused,
    or cannot be reached.
    """
    lacking = []
    with graph.opened(folder) as repo:
        stages = graph.plan(repo, folder)
        for name in names:
            stage = stages[name]
            try:
                entries = [to_single_stage_lockfile(stage)] if as_recorded else shared(repo, stage, remote)
                if not any(bring(repo, stage, entry, remote, as_recorded) for entry in entries):
                    lacking.append(name)
            except (ValueError, DvcException):
                raise
            except Exception as error:  # ssh, S3 and file libraries have their own
                message = f"the remote {remote!r} did not give {name}: {type(error).__name__}: {error}"
                raise ValueError(message) from error
    return lacking


def shared(repo: Repo, stage: Any, remote: str) -> Iterator[dict]:
    """What may hold the stage's result, as entries of dvc.lock: its own, if it fits, then runs with the same inputs."""
    if not all(dep.exists for dep in stage.deps):
        return
    if not stage.changed_stage() and not stage.changed_deps() and all(out.hash_info for out in stage.outs):
        yield to_single_stage_lockfile(stage)
    stage.save_deps()
    if not _can_hash(stage):
        return
    key = _get_stage_hash(stage)
    runs = repo.cloud.get_remote_odb(remote, "fetch --run-cache", hash_name="md5-dos2unix")
    there = runs.fs.join(runs.path, "runs", key[:2], key)
    here = Path(repo.stage_cache.cache_dir, key[:2], key)
    here.mkdir(parents=True, exist_ok=True)
    for path in runs.fs.find(there) if runs.fs.exists(there) else []:
        name = runs.fs.name(path)
        if re.fullmatch(r"[0-9a-f]{64}", name) and not (here / name).exists():
            runs.fs.get_file(path, str(here / name))
    for file in sorted(here.iterdir()):
        if (entry := repo.stage_cache._load_cache(key, file.name)) is not None:
            yield entry


def bring(repo: Repo, stage: Any, entry: dict, remote: str, force: bool) -> bool:
    """Brings an entry's outputs into cache and workspace, and records them; False if the remote lacks some."""
    if {out["path"] for out in entry.get("outs", [])} != {out.def_path for out in stage.outs}:
        return False
    # As StageCache._create_stage, which asks that one stands in the folder.
    outs = [out["path"] for out in entry["outs"]]
    result = create_stage(PipelineStage, repo=repo, path=stage.path, cmd=entry["cmd"], wdir=stage.wdir, outs=outs)
    StageLoader.fill_from_lock(result, entry)
    for out in result.outs:
        if out.is_dir_checksum:
            repo.cloud.pull({out.hash_info}, remote=remote)
            if not out.cache.exists(out.hash_info.value):
                return False
            require_inside(Path(out.cache.oid_to_path(out.hash_info.value)), str(out))
    for objects in result.get_used_objs(remote=remote).values():
        repo.cloud.pull(objects, remote=remote)
    if not result.outs_cached():
        return False
    result.checkout(force=force)
    stage.save(run_cache=False)
    stage.dump(update_pipeline=False)
    return True


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
