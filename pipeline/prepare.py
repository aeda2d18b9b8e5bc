"""The one doorway to work: `ready` brings a graph into the state that every command needs."""

import importlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline import dvc_api, graph, project
from polygrain.config import compose, lists, remotes
from polygrain.config.compose import read_params
from polygrain.config.lists import Lists
from polygrain.config.site import keep_site
from polygrain.runner import command
from polygrain.sources.folder import require_followed

STAGES = sorted(path.stem for path in (Path(__file__).parents[1] / "stages").glob("[a-z]*.py"))


def ready(
    profile: str | None = None,
    start: Path | None = None,
    *,
    write: bool = True,
    inputs: bool = True,
    keep_listings: bool = False,
) -> Path:
    """The folder of the graph: its values composed and checked, its folders tidy, its object stores listed anew.

    Without `write` it only writes the graph and values of a profile where they have changed, since DVC reads those
    files. Without `inputs` the user's images need not be here. ValueError says what is wrong, and changes no result.
    """
    folder = graph.folder_of(profile, start)
    root = project(folder)
    if (root / "pipeline").is_dir() and not (root / "pipeline").samefile(Path(__file__).parent):
        raise ValueError(f"{root} has a polygrain of its own: run {root}/.venv/bin/polygrain there (`make install`)")
    keep_site(root)
    compose.renew(folder)
    # DVC reads every graph below the root, and one without values stops all of them.
    compose.renew_missing(root)
    if (root / "stages").is_dir():
        check(folder / "params.yaml", inputs)
    if write:
        dvc_api.drop_dead_list(root)
    if write and (folder / "params.yaml").exists():
        tidy(folder)
        if inputs and not keep_listings:
            renew_listings(folder)
    return folder


def check(file: Path, inputs: bool = True) -> None:
    """Compares the whole file with what all stages declare; ValueError lists each wrong value with what is allowed.

    Without `inputs`, files and folders that the values name need not be here.
    """
    values = read_params(file)
    wrong: list[str] = []

    def attempt(call: Callable[..., Any], *given: Any) -> Any:
        try:
            return call(*given)
        except ValueError as error:
            wrong.extend(str(error).splitlines())
            return None

    listed = attempt(command.validate, Lists, {key: value for key, value in values.items() if key not in STAGES})
    sections = {}
    for stage in STAGES:
        if params := getattr(importlib.import_module(f"stages.{stage}"), "Params", None):
            sections[stage] = attempt(command.validate, params, values.get(stage, {}), stage)
    sections = {stage: section for stage, section in sections.items() if section}
    for section in sections.values():
        if listed and hasattr(section, "fits"):
            attempt(section.fits, listed)
        if hasattr(section, "agrees"):
            attempt(section.agrees, sections, file.parent)
    for key, path in lists.paths(values):
        if "'" in path:
            wrong.append(f"{key}: {path} has a quote in it, which ends it in a command: rename the file or folder")
        elif inputs and not compose.MADE.match(path):
            if not (file.parent / path).exists():
                wrong.append(f"{key}: {path} does not exist")
            attempt(require_followed, file.parent / path)
    if wrong:
        beside = " (composed: change values.yaml beside it)" if (file.parent / "values.yaml").exists() else ""
        raise ValueError("\n  ".join([f"{file}{beside} has {len(wrong)} wrong value(s):", *wrong]))


def tidy(folder: Path) -> None:
    """Brings the folders of listed items in line with the lists: DVC reads them whole, and wants them to be there."""
    values = read_params(folder / "params.yaml")
    for stage, body in read_params(folder / "dvc.yaml")["stages"].items():
        items = values.get(str(body.get("foreach"))[2:-1])
        if items is not None:
            data = folder / "data" / stage
            data.mkdir(parents=True, exist_ok=True)
            for path in data.iterdir():
                if path.is_dir() and path.name not in items and path.suffix != ".partial":
                    shutil.rmtree(path)  # its results are in DVC's cache


def renew_listings(folder: Path) -> None:
    """Lists the object stores of the graph anew, and says which have changed; ValueError where one cannot be read."""
    try:
        for line in remotes.renew(folder):
            sys.stderr.write(f"{line}\n")
    except ValueError as error:
        raise ValueError(f"{error}; --keep-listings runs with its last listing") from error
