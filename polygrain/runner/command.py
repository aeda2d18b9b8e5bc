"""A stage's `main` as a command line: paths come from dvc.yaml, values from params.yaml, nothing has a default."""

import argparse
import atexit
import ctypes
import inspect
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from polygrain.compute import processes
from polygrain.compute.errors import first_line
from polygrain.config.compose import read_params
from polygrain.config.lists import Lists
from polygrain.config.schema import Section
from polygrain.config.versions import require_one_faiss
from polygrain.runner import inputs
from polygrain.store import imports, work

log = logging.getLogger("stages")
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any thread forks


def validate(kind: Any, value: object, where: str = "") -> Any:
    """The value as its kind; ValueError has a line for each wrong key: its name, what is allowed, what it got."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        lines = []
        for item in error.errors():
            key = ".".join(map(str, [where, *item["loc"]] if where else item["loc"]))
            message = {"missing": "is missing", "extra_forbidden": "is not a known key: remove it"}.get(item["type"])
            shown = f" (got {item['input']!r:.200})" if item["loc"] and not message else ""
            message = message or item["msg"].removeprefix("Value error, ")
            lines.append(f"{key + ': ' if key else ''}{message}{shown}")
        raise ValueError("\n".join(lines)) from error


def end_with_parent() -> None:
    """Has the kernel (of Linux) end this process with its parent: an orphan would write beside its successor."""
    if LIBC is not None:
        LIBC.prctl(1, signal.SIGTERM)


def run(main: Callable[..., str], params: type[Section] | None, **borrowed: str) -> None:
    """Runs `main` with its paths and items from the command line and its `params`, `lists`, `seed` from ./params.yaml.

    `borrowed` are values of other stages' sections, each by its full name: `attention="fusion.attention"` gives `main`
    the keyword `attention`, read as that keyword's type. `main` returns the line that is logged at the end: what came
    out, with counts.
    """
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    atexit.register(put_back)
    stage = Path(inspect.getfile(main)).stem
    arguments, keywords = parse(main, borrowed)
    start = time.monotonic()
    try:
        require_one_faiss()
        # Names the stage where DVC runs it, in the folder of its dvc.yaml.
        if address := os.environ.get("DVC_STAGE"):
            inputs.watch = inputs.Watch(Path(), inputs.read_by(Path(), address))
        values = read(stage, main, params, borrowed)
        name = "@".join([stage, *list(keywords.values())[:1]])
        result = main(**arguments, **keywords, **values)
        inputs.watch.require_same()
        finish()
        log.info("%s: %s (%.1f s)", name, result, time.monotonic() - start)
    except (ValueError, OSError) as error:
        if os.environ.get("POLYGRAIN_TRACEBACK"):
            raise
        # A wrong input is the user's to mend: they need the sentence, not our call stack.
        sys.exit(f"error: {error}")
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError" or os.environ.get("POLYGRAIN_TRACEBACK"):
            raise
        sys.exit(
            f"error: the GPU's memory is full ({first_line(error)}): set POLYGRAIN_BATCH to fewer images, if "
            f"they were embedded, or lower the batch of {stage} in params.yaml, which changes what is learnt"
        )
    if main.__module__ == "__main__" and processes.count() == 1 and not (sys.gettrace() or sys.getprofile()):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)  # all outputs are in place, and torch would take itself apart for a second


def finish() -> None:
    """Removes checkpoints, or leaves that to our DVC, which compares the inputs once more first."""
    atexit.unregister(put_back)
    if processes.rank() == 0:
        if finished := os.environ.get(inputs.FINISHED):
            Path(finished).write_text("\n".join(str(folder.resolve()) for folder in work.TAKEN), encoding="utf-8")
        else:
            work.clear()


def put_back() -> None:
    """Has plain DVC's last result of a stage that fails put back from the cache: it has removed it before the run."""
    file, address = imports.ROOT / "pipeline/dvc_command.py", os.environ.get("DVC_STAGE")
    if address and processes.rank() == 0 and inputs.FINISHED not in os.environ and file.exists():
        command = [sys.executable, "-P", str(file), "put-back", address.rpartition(":")[2]]
        subprocess.run(command, capture_output=True)


def parse(main: Callable[..., str], borrowed: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The words of the command line: the paths of `main`, each alone or in a NamedTuple, and its keywords that are
    items."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[main.__module__]))
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(main).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            groups[name] = parameter.annotation
            for field in getattr(parameter.annotation, "_fields", [name]):
                parser.add_argument(field, type=Path)
        elif name not in ("params", "lists", "seed", *borrowed):
            parser.add_argument(f"--{name.replace('_', '-')}", required=True)
    words = vars(parser.parse_args())
    paths = {
        name: kind(*map(words.pop, kind._fields)) if hasattr(kind, "_fields") else words.pop(name)
        for name, kind in groups.items()
    }
    return paths, words


def read(
    stage: str, main: Callable[..., str], params: type[Section] | None, borrowed: dict[str, str]
) -> dict[str, Any]:
    """The arguments of `main` from ./params.yaml; ValueError lists each wrong value."""
    values, expected = read_params(Path("params.yaml")), inspect.signature(main).parameters
    listed = validate(Lists, {key: values[key] for key in Lists.model_fields if key in values})
    result: dict[str, Any] = {"lists": listed, "seed": listed.seed}
    if params is not None:
        result["params"] = validate(params, values.get(stage, {}), stage)
    for name, key in borrowed.items():
        section, _, own = key.partition(".")
        result[name] = validate(expected[name].annotation, values.get(section, {}).get(own), key)
    return {name: value for name, value in result.items() if name in expected}
