"""The graph as DVC holds it: which stages, which edges, what each is for and needs, and what is stale.

It reads DVC's objects: the command line has no way to print a stage's `meta`.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvc.config import Config
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo, lock_repo
from dvc.repo.reproduce import get_active_graph, plan_repro

from pipeline import locks, project, site
from polygrain.config import compose


@dataclass(frozen=True)
class Stage:
    """One stage; `name` is what the dvc command takes in the folder that the graph was loaded for."""

    name: str
    upstream: tuple[str, ...]
    stale: bool
    """DVC sees another command, parameter or dependency than in dvc.lock, or an output that is not as recorded."""
    meta: Mapping[str, Any]
    desc: str
    outs: tuple[Path, ...]


def folder_of(profile: str | None = None, start: Path | None = None) -> Path:
    """The folder whose dvc.yaml is meant: the repository's own, or that of a profile; ValueError lists those known.

    A profile's params.yaml, which the graph is made of, is composed anew where its values have changed. What a kill has
    left of DVC's locks is mended.
    """
    root = project(start)
    if root is None:
        raise ValueError(
            f"{start or Path.cwd()} is in no DVC repository: change to the project's folder, or `dvc init` one"
        )
    folder = root / "profiles" / profile if profile else root
    known = sorted({path.parent.name for path in root.glob("profiles/*/*.yaml")})
    if profile and profile in known and not (folder / "dvc.yaml").exists():
        (folder / "dvc.yaml").symlink_to("../../dvc.yaml")  # those that ship have only their values
    if profile not in (None, "", *known) or not (folder / "dvc.yaml").exists():
        if profile:
            raise ValueError(f"unknown profile {profile!r}; known here: {', '.join(known) or 'none'}")
        raise ValueError(f"{folder} has no dvc.yaml: it is where the graph should stand")
    compose.renew(folder)
    compose.renew_missing(root)
    keep_private(root)
    locks.mend(root)
    return folder


def keep_private(root: Path) -> None:
    """Has plain dvc, too, keep its pickles in this clone; seen from there, since DVC takes a relative path from where
    it is called."""
    config = Config(root / ".dvc")
    if config["core"].get("site_cache_dir") != str(site(root)):
        with config.edit("local") as local:
            local["core"]["site_cache_dir"] = str(site(root))


@contextmanager
def opened(folder: Path) -> Iterator[Repo]:
    """DVC's repository around the folder, locked once whoever holds it lets go; DVC's errors as ValueError."""
    try:
        # The same as `dvc --wait-for-lock`: without it, a neighbour who hashes for more than 3 seconds is an error.
        with Repo(str(folder), _wait_for_lock=True) as repo, lock_repo(repo):
            yield repo
    except NotDvcRepoError as error:
        raise ValueError(f"{folder} is in no DVC repository: change to the project's folder") from error
    except DvcException as error:
        causes, cause = [str(error)], error.__cause__
        while cause is not None:
            causes.append(str(cause))
            cause = cause.__cause__
        raise ValueError(f"DVC cannot read the graph: {': '.join(causes)}") from error


def name_of(stage: Any, folder: Path) -> str:
    """What `dvc repro` calls the stage when it runs in `folder`."""
    file = Path(stage.path).parent.resolve() / Path(stage.path).name
    name = getattr(stage, "name", None)
    if name and file == folder.resolve() / "dvc.yaml":
        return name
    relative = os.path.relpath(file, folder.resolve())
    return f"{relative}:{name}" if name else relative


def load(folder: Path | None = None, targets: Iterable[str] = ()) -> list[Stage]:
    """The stages of the folder's dvc.yaml and all they read from, in the order in which `dvc repro` would run them.

    With `targets` (stages, or the name before the @) only those and what they read from; ValueError lists those known.
    """
    folder = folder or folder_of()
    with opened(folder) as repo:
        own = repo.stage.collect(str(folder / "dvc.yaml"))
        graph = get_active_graph(repo.index.graph)
        plan = plan_repro(graph, own)
        names = {stage: name_of(stage, folder) for stage in plan}
        # By file: asked stage by stage, DVC would read the graph again for each.
        changed = repo.status(targets=sorted({stage.relpath for stage in plan})) if plan else {}
        stages = [
            Stage(
                names[stage],
                tuple(names[other] for other in graph.successors(stage)),
                stage.addressing in changed,
                dict(stage.meta or {}),
                stage.desc or "",
                tuple(Path(out.fs_path) for out in stage.outs),
            )
            for stage in plan
        ]
    return closure(stages, targets) if targets else stages


def command_of(folder: Path, name: str) -> list[str]:
    """The words of a stage's command, as DVC would run it in the folder; ValueError lists the stages known."""
    with opened(folder) as repo:
        known = {name_of(stage, folder): stage.cmd for stage in repo.stage.collect(str(folder / "dvc.yaml"))}
    if name not in known:
        raise ValueError(f"unknown stage {name!r}; known here: {', '.join(sorted(known))}")
    return shlex.split(known[name])


def closure(stages: list[Stage], targets: Iterable[str]) -> list[Stage]:
    """The stages that the targets mean and all they read from, in the given order (sources before readers)."""
    wanted = chosen([stage.name for stage in stages], targets)
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted.update(stage.upstream)
    return [stage for stage in stages if stage.name in wanted]


def chosen(names: list[str], targets: Iterable[str]) -> set[str]:
    """The names that the targets mean; a name before the @ means all of its items."""
    found = set()
    for target in targets:
        matching = {name for name in names if target in (name, name.split("@")[0])}
        if not matching:
            raise ValueError(f"unknown target {target!r}; known here: {', '.join(names)}")
        found |= matching
    return found


def to_do(stages: list[Stage]) -> list[Stage]:
    """The stale stages and all that follow from them, in the given order (sources before readers)."""
    names: set[str] = set()
    for stage in stages:
        if stage.stale or names & set(stage.upstream):
            names.add(stage.name)
    return [stage for stage in stages if stage.name in names]
