"""The graph as DVC holds it: stages, edges, `meta`, outputs, stale stages with the causes.

It reads DVC's objects, since no dvc command prints a stage's `meta`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline import dvc_api, project
from polygrain.config import compose, graph


@dataclass(frozen=True)
class Stage:
    """One stage; `name` is what the dvc command takes in the folder that the graph was loaded for."""

    name: str
    upstream: tuple[str, ...]
    stale: bool
    meta: Mapping[str, Any]
    causes: tuple[str, ...] = ()
    """what has changed, each in a few words"""

    @property
    def why(self) -> str:
        return ", ".join(self.causes)


def folder_of(profile: str | None = None, start: Path | None = None) -> Path:
    """The folder of the project's own graph or of a profile's.

    ValueError: no project is here, or the profile is unknown.
    """
    root = project(start)
    if root is None:
        raise ValueError(f"{start or Path.cwd()} is in no project: change to a clone of polygrain")
    if profile and not compose.is_profile(root / "profiles" / profile) and profile not in (known := profiles(root)):
        raise ValueError(f"unknown profile {profile!r}; {dvc_api.like(profile, known)}")
    return root / "profiles" / profile if profile else root


def titled(profile: str | None, words: str) -> str:
    """The name of a run or a stage of this graph on Prefect's pages."""
    return f"{profile or 'default graph'}: {words}"


def profiles(root: Path) -> list[str]:
    """The names of all profiles, those of the papers last."""
    own = sorted(path.name for path in root.glob("profiles/*") if compose.is_profile(path))
    return list(dict.fromkeys([*own, *sorted(compose.listed(root / "profiles"))]))


def name_of(stage: Any, folder: Path) -> str:
    """The stage's name for `dvc repro` in `folder`."""
    path, name = Path(stage.path), getattr(stage, "name", None)
    file = os.path.relpath(path.parent.resolve() / path.name, folder.resolve())
    return name if name and file == "dvc.yaml" else f"{file}:{name}" if name else file


def plan(repo: Any, folder: Path, targets: Iterable[str] = ()) -> dict[str, Any]:
    """DVC's own stages by name: those of the folder and all they read from, sources before readers.

    With `targets` (stages, or the name before the @) only those and what they read from; ValueError lists those known.
    """
    try:
        own = dvc_api.stages_of(repo, folder / "dvc.yaml", targets)
    except (ValueError, dvc_api.DvcException) as error:
        if named := [Path(word).name for word in targets if Path(word).name in profiles(project(folder))]:
            raise ValueError(f"{named[0]} is a profile: --profile {named[0]}") from error
        raise
    return {name_of(stage, folder): stage for stage in dvc_api.with_sources(repo, own)}


def load(folder: Path, targets: Iterable[str] = (), texts: Mapping[Path, str] = MappingProxyType({})) -> list[Stage]:
    """The stages of `plan` with their state by DVC; without `targets` only the needed ones.

    `texts`: in place of those of files on the disk.
    """
    with dvc_api.opened(folder, texts) as repo:
        stages = plan(repo, folder, targets)
        names = {stage: name for name, stage in stages.items()}
        sources, changed = dvc_api.sources(repo, names), dvc_api.changed(names)
        loaded = [
            Stage(
                name,
                upstream=tuple(names[other] for other in sources[stage]),
                stale=stage in changed,
                meta=dict(stage.meta or {}),
                causes=causes(stage, changed[stage]) if stage in changed else (),  # it reads values anew
            )
            for name, stage in stages.items()
        ]
    serving = {stage.name for stage in loaded if stage.meta.get("serves")}
    kept = graph.needed({stage.name: stage.upstream for stage in loaded}, serving)
    return loaded if targets else [stage for stage in loaded if stage.name in kept]


def causes(stage: Any, entries: Iterable[Any]) -> tuple[str, ...]:
    """The changes of a stage, by its entries in DVC's status."""
    if not any(out.hash_info for out in stage.outs):
        return ("never run here",)
    deps: dict[str, Any] = {}
    others = []
    for entry in entries:
        if isinstance(entry, str):
            others.append("its command has changed")
        else:
            deps |= entry.get("changed deps", {})
            others += [f"{path} is {state}" for path, state in entry.get("changed outs", {}).items()]
    for dep in stage.deps:
        values = dvc_api.values_of(dep)
        if values and isinstance(deps.get(str(dep)), dict):
            del deps[str(dep)]
            old, new = values
            others += [line for key in new for line in differences(key, old.get(key), new[key])]
    return (*others, *(f"{path.replace('../', '')} is {state}" for path, state in deps.items()))


def differences(key: str, old: Any, new: Any) -> Iterator[str]:
    """Each value below the key that differs, as `adaptor.epochs 7 -> 3`; a removed one as `teacher -> gone`."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from (f"{key}.{name} -> gone" for name in old if name not in new)
        for name, value in new.items():
            yield from differences(f"{key}.{name}", old.get(name), value)
    elif old != new:
        yield f"{key} {old} -> {new}"


def by_cause(stages: Iterable[Stage]) -> Iterator[str]:
    """A line for each cause, with the stages that it makes stale, those of one kind as their number; then the rest."""
    told: dict[str, dict[str, list[str]]] = {}
    for stage in sorted(stages, key=lambda stage: not stage.stale):
        for cause in stage.causes if stage.stale else ["then"]:
            told.setdefault(cause, {}).setdefault(stage.name.partition("@")[0], []).append(stage.name)
    for cause, kinds in told.items():
        names = (f"{kind} ({len(names)})" if len(names) > 1 else names[0] for kind, names in kinds.items())
        yield f"{cause}: {', '.join(names)}"


def to_do(stages: list[Stage]) -> list[Stage]:
    """The stale stages and all that follow from them, in the given order."""
    result: dict[str, Stage] = {}
    for stage in stages:
        before = [name for name in stage.upstream if name in result]
        if stage.stale or before:
            result[stage.name] = stage if stage.stale else replace(stage, causes=(f"after {', '.join(before)}",))
    return list(result.values())
