"""The one doorway to work: `ready` brings a graph into the state that every command needs."""

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline import dvc_api, graph, project
from polygrain.compute.counted import counted
from polygrain.config import compose, lists, remotes
from polygrain.config.compose import read_params
from polygrain.config.graph import items_of, value_of
from polygrain.config.lists import Lists
from polygrain.config.site import keep_site
from polygrain.runner import command
from polygrain.runner.inputs import digest
from polygrain.sources.datasets.sets import SETS
from polygrain.sources.folder import few, require_followed

STAGES = sorted(path.stem for path in (Path(__file__).parents[1] / "stages").glob("[a-z]*.py"))


def ready(profile: str | None = None, start: Path | None = None, *, inputs: bool = True) -> Path:
    """The folder of the graph: its values composed and checked, its folders tidy, its object stores listed anew.

    Without `inputs` the user's images need not be here. Beside a run nothing is written. ValueError says what is wrong,
    or that a run with other values is at work, and changes no result.
    """
    return composed(profile, start, inputs)[0]


def composed(
    profile: str | None = None, start: Path | None = None, inputs: bool = True, write: bool = True
) -> tuple[Path, dict[Path, str]]:
    """`ready`, with the files that it wrote and their texts; without `write` those that it would write."""
    folder = graph.folder_of(profile, start)
    root = project(folder)
    if (root / "pipeline").is_dir() and not (root / "pipeline").samefile(Path(__file__).parent):
        raise ValueError(f"{root} has a polygrain of its own: run {root}/.venv/bin/polygrain there (`make install`)")
    keep_site(root)
    if write:
        dvc_api.drop_dead_list(root)
    with dvc_api.opened(root) as repo:
        running = dvc_api.at_work(repo, folder)
        texts = compose.changes(folder)
        if running and texts:
            raise ValueError(f"another run is at work here, with other values, wait until it ends: {running}")
        file = folder.resolve() / "params.yaml"
        values = compose.parsed(file, texts[file]) if file in texts else None
        if values and file.exists() and (lines := [*graph.differences("", read_params(file), values)]):
            said = few([line.removeprefix(".") for line in lines])
            made_of = os.path.relpath(compose.source(folder) or file)
            sys.stderr.write(f"{os.path.relpath(file)} is not what {made_of} makes: {said}\n")
        texts |= compose.missing(root)
        if write:
            compose.write(texts)
    if (root / "stages").is_dir():
        # Not under the lock: to load all stages takes seconds.
        check(file, inputs, keep=write, values=values)
    if write and not running and (folder / "params.yaml").exists():
        for line in remotes.renew(folder) if inputs else ():
            sys.stderr.write(f"{line}\n")
        with dvc_api.opened(root) as repo:
            if not dvc_api.at_work(repo, folder):
                tidy(folder)
    return folder, texts


def check(file: Path, inputs: bool = True, keep: bool = False, values: dict[str, Any] | None = None) -> None:
    """Compares the whole file with what all stages declare; ValueError lists each wrong value with what is allowed.

    Without `inputs`, files and folders that the values name need not be here. With `keep` it is kept that the values
    are right, since to load all stages takes seconds; then only those files and folders are looked for. Where some are
    missing, that alone is said. `values`: in place of those in the file.
    """
    kept, checked = file.parent / ".work/checked", ""
    values = read_params(file) if values is None else values
    wrong = list(wrong_paths(file, values, inputs))  # first: to load all stages takes seconds
    if not wrong:
        checked = fingerprint(file, values)
        wrong = [] if kept.exists() and kept.read_text() == checked else list(wrong_values(file, values))
    if wrong:
        beside = ""
        if source := compose.source(file.parent):
            beside = f" (composed: change {source})"
            wrong = [re.sub(r"^paths\.([\w-]+)", r"tasks.\1.path", line) for line in wrong]  # as written there
        raise ValueError("\n  ".join([f"{file}{beside} has {counted(len(wrong), 'wrong value')}:", *wrong]))
    if keep:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(checked)


def fingerprint(file: Path, values: dict[str, Any]) -> str:
    """Of what decides whether the values are right: these, the sources, and the encoder that they name."""
    root, encoder = Path(__file__).parents[1], file.parent / str(value_of("encoder.path", values))
    return "\n".join([repr(values), *map(digest, (root / "stages", root / "polygrain", encoder))])


def wrong_paths(file: Path, values: dict[str, Any], inputs: bool) -> Iterator[str]:
    """A line for each named file or folder that cannot be read."""
    for key, path in lists.paths(values):
        if "'" in path:
            yield f"{key}: {path} has a quote in it, which ends it in a command: rename the file or folder"
        elif inputs and not compose.MADE.match(path):
            if not (file.parent / path).resolve().exists():  # the folder itself may not be there yet
                source = value_of(f"tasks.{key.removeprefix('paths.')}.source", values)
                yield f"{key}: {path} does not exist{way_to((file.parent / path).resolve(), source, file.parent)}"
            yield from errors(require_followed, file.parent / path)


def way_to(data: Path, source: object, folder: Path) -> str:
    """The way to missing data: the command that fetches a public data set, or the page on the papers."""
    known = SETS.get(str(source))
    if known and known.archives and data.name in SETS:
        return f": python -m polygrain.sources.datasets {data.parent} {data.name}"
    return ": docs/howto/papers.md says how to get it" if folder.name in compose.listed(folder.parent) else ""


def errors(call: Callable[..., Any], *given: Any) -> list[str]:
    """The lines of the ValueError that a call raises; none where it raises none."""
    try:
        call(*given)
    except ValueError as error:
        return str(error).splitlines()
    return []


def wrong_values(file: Path, values: dict[str, Any]) -> Iterator[str]:
    """A line for each value that is not as the stages declare it."""
    sections: dict[str, Any] = {}

    def read(name: str, kind: Any, given: Any, where: str = "") -> None:
        sections[name] = command.validate(kind, given, where)

    yield from errors(read, "", Lists, {key: value for key, value in values.items() if key not in STAGES})
    stages = read_params(Path(__file__).parents[1] / "dvc.yaml")["stages"]
    unused = {name for name, body in stages.items() if items_of(body, values) in ({}, [])}
    for stage in STAGES:
        if stage in unused and stage not in values:
            continue  # the section of a branch that is off
        if params := getattr(importlib.import_module(f"stages.{stage}"), "Params", None):
            yield from errors(read, stage, params, values.get(stage, {}), stage)
    listed = sections.pop("", None)
    for section in sections.values():
        if listed and hasattr(section, "fits"):
            yield from errors(section.fits, listed)
        if hasattr(section, "agrees"):
            yield from errors(section.agrees, sections, file.parent)


def tidy(folder: Path) -> None:
    """Brings the folders of listed items in line with the lists: DVC reads them whole.

    They must also exist, but in a profile: its graph has no stage of an empty list.
    """
    values, root = read_params(folder / "params.yaml"), project(folder)
    for stage, body in read_params(root / "dvc.yaml")["stages"].items():
        items = items_of(body, values)
        if isinstance(body.get("foreach"), str) and items is not None:
            data = folder / "data" / stage
            data.mkdir(parents=True, exist_ok=True)
            for path in data.iterdir():
                if path.is_dir() and path.name not in items and path.suffix != ".partial":
                    shutil.rmtree(path)  # its results are in DVC's cache
            if not items and folder != root:
                with suppress(OSError):  # what is unfinished stays
                    data.rmdir()
