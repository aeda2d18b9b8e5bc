"""What every stage declares about its section of params.yaml, as tables: key, type, bounds, values, description.

A class that several keys share (the random views of images, say) is one table, with the values of every place.
"""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent.parent
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
NAME = "*"  # stands for every key of a mapping whose names are the user's


@dataclass
class Row:
    """A key, seen from its table, with its values: {full key in params.yaml: value}."""

    key: str
    kind: str
    text: str
    values: dict[str, object]


@dataclass
class Table:
    """A section of params.yaml, or a class that several of them share; then `places` are the keys that hold one."""

    title: str
    text: str
    rows: list[Row] = field(default_factory=list)
    places: list[str] = field(default_factory=list)


def read_yaml(name: str) -> dict:
    return YAML(typ="safe").load((ROOT / name).read_text(encoding="utf-8"))


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """(stage, its Params) for every stage file that has one."""
    for file in sorted((ROOT / "stages").glob("*.py")):
        if file.stem != "__init__":
            params = getattr(importlib.import_module(f"stages.{file.stem}"), "Params", None)
            if params is not None:
                yield file.stem, params


def lists_model() -> type[BaseModel]:
    """The class `Lists` of what stands above the sections, wherever its room keeps it."""
    for file in sorted((ROOT / "polygrain/runner").glob("*.py")):
        if any(isinstance(node, ast.ClassDef) and node.name == "Lists" for node in ast.parse(file.read_text()).body):
            return importlib.import_module(f"polygrain.runner.{file.stem}").Lists
    raise ValueError("no module of polygrain/runner has the class Lists")


def resolve(schema: dict, classes: dict) -> tuple[dict, str | None]:
    """The schema without `$ref` and without its null, and the name of its class if it has one."""
    for option in schema.get("anyOf", []):
        if option.get("type") != "null":
            schema = {**option, **{key: value for key, value in schema.items() if key != "anyOf"}}
            break
    name = schema.get("$ref", "").removeprefix("#/$defs/") or None
    return ({**classes[name], **schema} if name else schema), name


def kind(schema: dict, classes: dict) -> str:
    """What a value may be, in words."""
    if "anyOf" in schema:
        return " or ".join(kind(option, classes) for option in schema["anyOf"])
    if "$ref" in schema:
        return "section"  # its keys follow, each in a row of its own
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    limits = ", ".join(f"{sign} {schema[name]}" for name, sign in BOUNDS.items() if name in schema)
    plain = schema.get("type", "value")
    if plain == "array":
        first = next(iter(schema.get("prefixItems", [])), {})
        return f"list of {kind(schema.get('items') or first, classes)}"
    if plain == "object":
        inner = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), {})
        named = ", ".join(f"`{name}`" for name in schema.get("propertyNames", {}).get("enum", [])) or "names"
        return f"{named}, each with: {kind(inner, classes)}" if inner else named
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    return " ".join(filter(None, [words.get(plain, plain), limits]))


def at(values: dict[str, object], key: str) -> dict[str, object]:
    """The values one level deeper."""
    inner = {place: value[key] for place, value in values.items() if isinstance(value, dict) and key in value}
    return {f"{place}.{key}" if place else key: value for place, value in inner.items()}


def items(values: dict[str, object]) -> dict[str, object]:
    """The values of every item of a mapping or list."""
    found = {}
    for place, value in values.items():
        named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        found |= {f"{place}.{key}": item for key, item in named}
    return found


class Walker:
    """Goes through the JSON schema of one model; shared classes are put aside, into `shared`."""

    def __init__(self, classes: dict, uses: dict[str, int], shared: dict[str, Table]) -> None:
        self.classes, self.uses, self.shared = classes, uses, shared

    def rows(self, schema: dict, prefix: str, values: dict[str, object]) -> list[Row]:
        found = []
        for key, own in schema.get("properties", {}).items():
            found += self.row(own, f"{prefix}{key}", at(values, key))
        return found

    def row(self, schema: dict, key: str, values: dict[str, object]) -> list[Row]:
        plain, name = resolve(schema, self.classes)
        text = schema.get("description", "")
        if name and self.uses[name] > 1:
            self.share(name, plain, {place: value for place, value in values.items() if value is not None})
            return [Row(key, f"{{{name}}}", text, {place: None for place, value in values.items() if value is None})]
        if name:
            text = text or self.opening(name).removesuffix(".")
            return [Row(key, kind(schema, self.classes), text, {}), *self.rows(plain, f"{key}.", values)]
        inner = plain.get("items") or plain.get("additionalProperties")
        inner = inner or next(iter(plain.get("patternProperties", {}).values()), None)
        if isinstance(inner, dict) and resolve(inner, self.classes)[1]:
            mark = NAME if plain.get("type") == "object" else "[]"
            below = self.row(inner, f"{key}.{mark}", items(values))
            opening = "names, each with the keys below" if mark == NAME else "list; each has the keys below"
            below = below[1:] if below[0].kind == "section" else below
            return [Row(key, opening, text, {}), *below]
        given = values or ({f"{key} (in code)": schema["default"]} if "default" in schema else {})
        return [Row(key, kind(schema, self.classes), text, given)]

    def opening(self, name: str) -> str:
        """The docstring of a class."""
        return " ".join(self.classes[name].get("description", "").split())

    def share(self, name: str, plain: dict, values: dict[str, object]) -> None:
        table = self.shared.setdefault(name, Table(name, self.opening(name)))
        table.places += values
        rows = self.rows(plain, "", values)
        if not table.rows:
            table.rows = rows
            return
        for known, row in zip(table.rows, rows, strict=True):
            known.values |= row.values


def uses(schemas: list[dict]) -> dict[str, int]:
    """How many keys hold each class."""
    text = json.dumps(schemas)
    names = {name for schema in schemas for name in schema.get("$defs", {})}
    return {name: len(re.findall(rf'"#/\$defs/{name}"', text)) for name in names}


def tables() -> tuple[list[Table], list[Table]]:
    """The sections in the order of params.yaml, the lists first; and the classes that they share."""
    values, graph = read_yaml("params.yaml"), read_yaml("dvc.yaml")["stages"]
    schemas = {"lists": lists_model().model_json_schema()}
    schemas |= {stage: model.model_json_schema() for stage, model in models()}
    counted, shared = uses(list(schemas.values())), {}
    found = {}
    for stage, schema in schemas.items():
        walker = Walker(schema.get("$defs", {}), counted, shared)
        if stage == "lists":
            own = {"": {key: values[key] for key in schema["properties"] if key in values}}
            found[stage] = Table("Lists", "What the stages are repeated for.", walker.rows(schema, "", own))
        else:
            text = graph[stage].get("do", graph[stage])["desc"]
            found[stage] = Table(stage, f"{text}.", walker.rows(schema, "", {stage: values.get(stage)}))
    order = ["lists", *[key for key in values if key in found and key != "lists"]]
    return [found[stage] for stage in [*order, *sorted(set(found) - set(order))]], list(shared.values())
