"""A stage's `main` as a command line: paths come from dvc.yaml, values from params.yaml, nothing has a default."""

import argparse
import ctypes
import hashlib
import importlib
import inspect
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from pydantic import TypeAdapter, ValidationError

from polygrain.compute import processes
from polygrain.config import compose, document, lists, merging, schema, words
from polygrain.config.lists import Lists
from polygrain.config.schema import Section
from polygrain.store.writing import writing

log = logging.getLogger("stages")
ROOT = Path(__file__).parents[2]
STAGES = ROOT / "stages"
GRAPH = ROOT / "dvc.yaml"
SHOWN = 200  # letters of a wrong value


def complaints(error: ValidationError, where: str) -> list[str]:
    """One line per wrong key: its full name, the value met, what is allowed."""
    lines = []
    for item in error.errors():
        key = ".".join([where, *map(str, item["loc"])] if where else map(str, item["loc"]))
        met = (
            ""
            if item["type"] in ("missing", "extra_forbidden") or not item["loc"]
            else f" (met {shown(item['input'])})"
        )
        message = {"missing": "is missing", "extra_forbidden": "is not a known key"}.get(item["type"], item["msg"])
        lines.append(f"  {key or 'lists'}: {message}{met}")
    return lines


def shown(value: object) -> str:
    """A value met, not more of it than helps to find it."""
    return text if len(text := repr(value)) <= SHOWN else f"{text[:SHOWN]} ..."


def read_params(file: Path) -> dict:
    """The sections of params.yaml; ValueError names the file where it is none, or not fit to be read."""
    values = document.values(document.text(file), str(file))
    if not isinstance(values, dict):
        raise ValueError(f"{file} holds no sections")
    return values


def paths(values: dict, prefix: str = "") -> list[tuple[str, str]]:
    """Every value that is a path, with its full key: those named `path`, and the weights of a study."""
    found = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += paths(value, f"{prefix}{key}.")
        elif isinstance(value, str) and (key == "path" or (key == "weights" and prefix.startswith("tll."))):
            found.append((f"{prefix}{key}", value))
    return found


def dropped(values: object, key: str = "") -> list[str]:
    """The full names of keys that DVC's run cache leaves out of account: it would take an old result for a new one."""
    if isinstance(values, list):
        return [name for value in values for name in dropped(value, key)]
    if not isinstance(values, dict):
        return []
    full = {name: f"{key}.{name}" if key else str(name) for name in values}
    found = [full[name] for name in values if name in ("size", "nfiles")]
    return found + [name for inner, value in values.items() for name in dropped(value, full[inner])]


def check(file: Path) -> None:
    """Compares the whole file with what every stage declares; ValueError lists each wrong key with what is allowed.

    A profile's file is refused first where it is not what its values.yaml composes to.
    """
    compose.require(file)
    values = read_params(file)
    stages = sorted(path.stem for path in STAGES.glob("*.py") if path.stem != "__init__")
    wrong, listed, sections = [], None, {}
    try:
        listed = Lists(**{key: value for key, value in values.items() if key not in stages})
    except ValidationError as error:
        wrong += complaints(error, "")
    for stage in stages:
        params = getattr(importlib.import_module(f"stages.{stage}"), "Params", None)
        if params is None:
            continue
        if stage not in values and is_off(stage, values):
            continue
        try:
            section = sections[stage] = params.model_validate(values.get(stage, {}))
            if listed is not None and hasattr(section, "fits"):
                section.fits(listed)
        except ValidationError as error:
            wrong += complaints(error, stage)
        except ValueError as error:
            wrong.append(f"  {error}")
    for section in sections.values():
        try:
            if hasattr(section, "agrees"):
                section.agrees(sections, file.parent)
        except ValueError as error:
            wrong.append(f"  {error}")
    wrong += words.wrong(words.read(GRAPH), values)
    wrong += [f"  {key}: DVC's run cache does not see a key of this name; choose another" for key in dropped(values)]
    # What a stage makes (a pretrained encoder, say) need not be there yet.
    made = tuple(f"data/{stage}/" for stage in stages)
    given = [(key, path) for key, path in paths(values) if not f"{path}/".startswith(made)]
    wrong += [f"  {key}: {path} does not exist" for key, path in given if not (file.parent / path).exists()]
    wrong += [
        f"  {key}: {path} holds {name!r}, a name that is not UTF-8, which DVC cannot track; rename it"
        for key, path in given
        if (name := first_foreign_name(file.parent / path)) is not None
    ]
    if wrong:
        raise ValueError("\n".join([f"{compose.named(file)} has {len(wrong)} wrong value(s):", *wrong]))


def first_foreign_name(folder: Path) -> bytes | None:
    """The first name below a folder that is not UTF-8; None where there is no such folder."""
    if not folder.is_dir():
        return None
    for _, folders, names in os.walk(os.fsencode(folder)):
        for name in sorted(folders + names):
            try:
                name.decode()
            except UnicodeDecodeError:
                return name
    return None


def is_off(stage: str, values: dict) -> bool:
    """Whether the stage's branch (`gsp` of `gsp_folds`) has lists of its own, all empty: then no section is needed."""
    branch = stage.split("_")[0]
    own = [values.get(name) for name in Lists.model_fields if name.split("_")[0] == branch]
    return bool(own) and not any(own)


def stamp(file: Path) -> Path:
    """What is there once this very file has passed under these very sources, composed from these very values."""
    sources = [
        *sorted(STAGES.glob("*.py")),
        *(Path(module.__file__) for module in (schema, lists, compose, merging, document, words)),
        Path(__file__),
        GRAPH,
    ]
    given = [document.text(path).encode() for path in (file, *compose.sources(file))]
    state = hashlib.sha256(b"".join([*given, *(path.read_bytes() for path in sources)])).hexdigest()
    return file.parent / ".work/checked" / state[:16]


def check_and_stamp(file: Path) -> None:
    check(file)
    stamp(file).parent.mkdir(parents=True, exist_ok=True)
    stamp(file).touch()


def check_once(file: Path) -> None:
    """`check`, skipped where the file has its stamp (a stage start should stay quick)."""
    if not stamp(file).exists():
        check_and_stamp(file)


def end_with_parent() -> None:
    """Asks the kernel to end this process when DVC dies: an orphan would write beside its successor."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def run(main: Callable[..., str], params: type[Section] | None, **borrowed: str) -> None:
    """Runs `main` with its paths and items from the command line and its `params`, `lists`, `seed` from ./params.yaml.

    `borrowed` are values of other stages' sections, each by its full name: `attention="fusion.attention"` gives `main`
    the keyword `attention`, read as that keyword's type. `main` returns the line that is logged at the end: what came
    out, with counts.
    """
    end_with_parent()
    # Whoever can change what a stage has written decides what the next one reads; a group may share a cache.
    os.umask(os.umask(0o077) | 0o002)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[main.__module__]))
    wanted = inspect.signature(main).parameters
    for name, parameter in wanted.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            parser.add_argument(name, type=Path)
        elif name not in ("params", "lists", "seed", *borrowed):
            parser.add_argument(f"--{name.replace('_', '-')}", type=str, required=True)
    arguments = vars(parser.parse_args())
    stage = Path(inspect.getfile(main)).stem
    start = time.monotonic()
    try:
        file = Path("params.yaml")
        check_once(file)
        values = read_params(file)
        lists = Lists(**{key: values[key] for key in Lists.model_fields})
        offered = {"lists": lists, "seed": lists.seed}
        if params is not None:
            offered["params"] = params.model_validate(values[stage])
        for name, key in borrowed.items():
            section, _, own = key.partition(".")
            offered[name] = TypeAdapter(wanted[name].annotation).validate_python(values[section][own])
        named = {name: value for name, value in arguments.items() if isinstance(value, str)}
        items = list(named.values())
        log.info("%s: from %s", "@".join([stage, *items[:1]]), ", ".join(map(str, list_inputs(arguments))))
        with writing("what was finished before is kept"):
            result = main(**arguments, **{name: value for name, value in offered.items() if name in wanted})
        log.info("%s: %s (%.1f s)", "@".join([stage, *items[:1]]), result, time.monotonic() - start)
        if main.__module__ == "__main__" and processes.count() == 1 and not (sys.gettrace() or sys.getprofile()):
            leave()
    except (ValueError, OSError) as error:
        if os.environ.get("POLYGRAIN_TRACEBACK"):
            raise
        # A wrong input is the user's to mend: they need the sentence, not our call stack.
        sys.exit(f"error: {re.sub(r'^Value error, ', '', str(error))}")


def leave() -> NoReturn:
    """Ends a process whose output is in place; torch would first take itself apart for a second."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def list_inputs(arguments: dict[str, Path | str]) -> list[Path]:
    return [value for name, value in arguments.items() if isinstance(value, Path) and name != "output"]


def prepare(file: Path) -> None:
    """Before a run: composes what is composed, and checks; what passes here needs no second look by its first stage."""
    folder = file.parent.resolve()
    compose.renew(folder)
    compose.renew_missing(folder if (folder / "profiles").is_dir() else compose.root_of(folder))
    check_and_stamp(file)


if __name__ == "__main__":
    try:
        prepare(Path(sys.argv[1] if len(sys.argv) > 1 else "params.yaml"))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
