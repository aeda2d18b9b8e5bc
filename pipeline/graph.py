"""The graph as DVC holds it: stages, edges, `meta`, outputs, what is stale, and why.

It reads DVC's objects, since no dvc command prints a stage's `meta`.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from dvc.dependency.param import ParamsDependency
from dvc.exceptions import DvcException
from dvc.repo import Repo, lock_repo
from dvc.repo.reproduce import get_active_graph, plan_repro
from dvc.stage.exceptions import StageNotFound
from zc.lockfile import LockFile

from pipeline import project

# Without the flag, a stage that ends while another dvc hashes for more than 3 seconds is lost.
DVC = [sys.executable, "-m", "dvc", "--wait-for-lock"]


@dataclass(frozen=True)
class Stage:
    """One stage; `name` is what the dvc command takes in the folder that the graph was loaded for."""

    name: str
    upstream: tuple[str, ...]
    stale: bool
    meta: Mapping[str, Any]
    why: str = ""
    """what has changed, in a few words; empty where nothing has"""


def folder_of(profile: str | None = None, start: Path | None = None) -> Path:
    """The folder of the project's own graph or of a profile's.

    ValueError: no project is here, or the profile is unknown.
    """
    root = project(start)
    if root is None:
        raise ValueError(f"{start or Path.cwd()} is in no project: change to one, or `polygrain init DIR` makes one")
    folder = root / "profiles" / profile if profile else root
    profiles = sorted({path.parent.name for path in root.glob("profiles/*/*.yaml")})
    if profile and profile not in profiles:
        raise ValueError(f"unknown profile {profile!r}; known here: {', '.join(profiles) or 'none'}")
    return folder


def drop_dead_list(root: Path) -> None:
    """Deletes DVC's list of paths in use where a kill has torn it, or where none of its processes runs any more."""
    file = root / ".dvc/tmp/rwlock"
    if not file.exists():
        return
    with closing(LockFile(f"{file}.lock")):  # as DVC does for each change of the list
        text = file.read_text(encoding="utf-8")
        try:
            json.loads(text)
            # DVC takes a process that has ended, and that nobody has waited for yet, for one that runs.
            is_in_use = any(runs(int(pid)) for pid in re.findall(r'"pid":\s*(\d+)', text))
        except ValueError:
            is_in_use = False
        if not is_in_use:
            file.unlink()


def runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def opened(folder: Path) -> Iterator[Repo]:
    """DVC's repository around the folder, once its lock is free; DVC's errors as ValueError."""
    try:
        with Repo(str(folder), _wait_for_lock=True) as repo, lock_repo(repo):
            yield repo
    except DvcException as error:
        causes = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        raise ValueError(f"DVC cannot read the graph: {': '.join(map(str, causes))}") from error


def name_of(stage: Any, folder: Path) -> str:
    """What `dvc repro` calls the stage when it runs in `folder`."""
    file, name = Path(stage.path), getattr(stage, "name", None)
    file = os.path.relpath(file.parent.resolve() / file.name, folder.resolve())
    return name if name and file == "dvc.yaml" else f"{file}:{name}" if name else file


def plan(repo: Repo, folder: Path, targets: Iterable[str] = ()) -> dict[str, Any]:
    """DVC's own stages by name: those of the folder and all they read from, sources before readers.

    With `targets` (stages, or the name before the @) only those and what they read from; ValueError lists those known.
    """
    file = str(folder / "dvc.yaml")
    try:
        own = [stage for name in targets or [""] for stage in repo.stage.collect(f"{file}:{name}".rstrip(":"))]
    except StageNotFound as error:
        raise ValueError(
            f"{error}; known here: {', '.join(stage.name for stage in repo.stage.collect(file))}"
        ) from error
    return {name_of(stage, folder): stage for stage in plan_repro(get_active_graph(repo.index.graph), own)}


def load(folder: Path, targets: Iterable[str] = ()) -> list[Stage]:
    """What `plan` gives, with what DVC knows of each."""
    with opened(folder) as repo:
        stages = plan(repo, folder, targets)
        names = {stage: name for name, stage in stages.items()}
        graph = get_active_graph(repo.index.graph)
        # Asked stage by stage, DVC would read the graph again for each.
        changed = repo.status(targets=sorted({stage.relpath for stage in stages.values()})) if stages else {}
        return [
            Stage(
                name,
                upstream=tuple(names[other] for other in graph.successors(stage)),
                stale=stage.addressing in changed,
                meta=dict(stage.meta or {}),
                why=reason(stage, changed.get(stage.addressing, [])),
            )
            for name, stage in stages.items()
        ]


def reason(stage: Any, entries: Iterable[Any]) -> str:
    """What has changed of a stage, by its entries in DVC's status."""
    if not any(out.hash_info for out in stage.outs):
        return "never run here"
    deps: dict[str, Any] = {}
    others = []
    for entry in entries:
        if isinstance(entry, str):
            others.append("its command")
        else:
            deps |= entry.get("changed deps", {})
            others += [f"{path} is {state}" for path, state in entry.get("changed outs", {}).items()]
    for dep in stage.deps:
        if isinstance(dep, ParamsDependency) and isinstance(deps.get(str(dep)), dict):
            del deps[str(dep)]
            old, new = dep.hash_info.value or {}, dep.read_params()
            others += [line for key in new for line in differences(key, old.get(key), new[key])]
    return ", ".join([*others, *(path.replace("../", "") for path in deps)])


def differences(key: str, old: Any, new: Any) -> Iterator[str]:
    """Each value below the key that differs, as `adaptor.epochs 7 -> 3`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from differences(f"{key}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield f"{key} {old} -> {new}"


def to_do(stages: list[Stage]) -> list[Stage]:
    """The stale stages and all that follow from them, in the given order."""
    result: dict[str, Stage] = {}
    for stage in stages:
        before = [name for name in stage.upstream if name in result]
        if stage.stale or before:
            result[stage.name] = stage if stage.stale else replace(stage, why=f"after {', '.join(before)}")
    return list(result.values())
