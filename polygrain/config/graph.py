"""The part of the root's dvc.yaml in a profile's: the stages that its values use, and those that they read."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

VALUE = re.compile(r"\$\{([^{}]+)\}")
Stages = dict[str, dict[str, Any]]


def used(graph: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The graph without the stages of an empty list, and without those that only serve others and serve none (`meta`).

    A stage that read a folder of theirs no longer does, so the folder need not be there.
    """
    every: Stages = graph.get("stages", {})
    stages = {name: body for name, body in every.items() if items_of(body, values) not in ({}, [])}
    made = {out: name for name, body in stages.items() for out in one(body)["outs"] if isinstance(out, str)}
    read = {name: [made.get(path, "") for path in paths_read(body, values)] for name, body in stages.items()}
    kept = needed(read, {name for name, body in stages.items() if one(body).get("meta", {}).get("serves")})
    stages = {name: stages[name] for name in kept}
    gone = {f"data/{name}" for name in every.keys() - stages.keys()}
    return graph | {"stages": {name: without_reads(body, gone) for name, body in stages.items()}}


def needed(upstream: Mapping[str, Iterable[str]], serving: Container[str]) -> list[str]:
    """The stages without those that only serve others (`meta: {serves: true}`), where no other reads them."""
    read = {name for names in upstream.values() for name in names}
    kept = {name: names for name, names in upstream.items() if name in read or name not in serving}
    return [*kept] if len(kept) == len(upstream) else needed(kept, serving)


def one(body: dict[str, Any]) -> dict[str, Any]:
    """A stage, or the one that is repeated."""
    return body.get("do", body)


def items_of(body: dict[str, Any], values: dict[str, Any]) -> Any:
    """The items that a stage is repeated for; None without a `foreach`, or where these values lack its list."""
    items = body.get("foreach")
    return value_of(items[2:-1], values) if isinstance(items, str) else items


def value_of(name: str, values: Any) -> Any:
    """The value of this full name; None where there is none."""
    for key in name.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values


def paths_read(body: dict[str, Any], values: dict[str, Any]) -> Iterator[str]:
    """The paths that a stage reads, of all its items."""
    items = items_of(body, values)
    named = items if isinstance(items, dict) else {item: item for item in items or [""]}
    for key, item in named.items():
        for path in one(body).get("deps", []):
            yield filled(path, values | {"key": key, "item": item})


def filled(text: str, values: dict[str, Any]) -> str:
    return VALUE.sub(lambda match: str(value_of(match[1], values)), text)


def without_reads(body: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    """The stage without its dependencies on these folders."""
    if "do" in body:
        return body | {"do": without_reads(body["do"], gone)}
    return body | {"deps": [path for path in body["deps"] if path not in gone]} if "deps" in body else body
