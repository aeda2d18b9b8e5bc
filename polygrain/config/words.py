"""The values that reach a shell: `python -m polygrain.config.words FOLDER` refuses those it would read as more.

DVC puts values and names of params.yaml into the commands of dvc.yaml as they stand, and gives the result to a shell.
So each must be one plain word there, or, inside single quotes, hold nothing that ends them.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polygrain.config import document

PLACE = re.compile(r"\$\{([^}]*)\}")
WORD = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./@+-]*")
# Paths may have spaces and letters of any language. DVC fills in what looks like one of its own variables.
QUOTED = re.compile(r"[^-\"'`$\\\x00-\x1f\x7f\ud800-\udfff][^\"'`$\\\x00-\x1f\x7f\ud800-\udfff]*")


def reached(graph: dict, values: dict) -> Iterator[tuple[str, Any, bool]]:
    """What the commands of a dvc.yaml take from the values: full name, value, and whether it stands in quotes."""
    for spec in graph["stages"].values():
        command = spec.get("do", spec)["cmd"]
        for place in PLACE.finditer(command):
            is_quoted = command[: place.start()].count("'") % 2 == 1
            first, *rest = place[1].strip().split(".")
            for name, value in starts(spec, first, values):
                for key in rest:
                    name, value = f"{name}.{key}", value.get(key) if isinstance(value, dict) else None
                yield name, value, is_quoted


def starts(spec: dict, first: str, values: dict) -> list[tuple[str, Any]]:
    """What the first word of a variable stands for: a section, or the keys or items that the stage is repeated for."""
    if "foreach" not in spec or first not in ("key", "item"):
        return [(first, values.get(first))]
    over = spec["foreach"]
    name = over.strip()[2:-1] if isinstance(over, str) else "foreach"
    items = values.get(name) if isinstance(over, str) else over
    if isinstance(items, list):
        return [(f"{name}[{number}]", item) for number, item in enumerate(items)]
    if not isinstance(items, dict):
        return []
    return [(f"{name}.{key}", key if first == "key" else item) for key, item in items.items()]


def wrong(graph: dict, values: dict) -> list[str]:
    """A line for each value that a shell would not read as one word; one that is missing is another check's."""
    lines = []
    for name, value, is_quoted in reached(graph, values):
        if value is None:
            continue
        text = str(value) if isinstance(value, str | int | float) else ""
        if not (QUOTED if is_quoted else WORD).fullmatch(text):
            allowed = "no quote, $, backslash or control character" if is_quoted else "letters, digits and _ . / @ + -"
            lines.append(f"  {name} is {value!r:.200}, and a command takes it: use {allowed}, and no - at the start")
    return list(dict.fromkeys(lines))


def read(file: Path) -> dict:
    found = document.values(document.text(file), str(file)) or {}
    if not isinstance(found, dict):
        raise ValueError(f"{file} holds no sections")
    return found


def main() -> None:
    params = Path(sys.argv[1]) / "params.yaml"
    try:
        if lines := wrong(read(params.with_name("dvc.yaml")), read(params)):
            raise ValueError("\n".join([f"{params} has {len(lines)} wrong value(s):", *lines]))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
