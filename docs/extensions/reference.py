"""The reference from the code: `params-`, `command-` and `stages-reference`, and our plain docstrings for autodoc."""

import importlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from docutils import nodes
from pydantic import BaseModel
from ruamel.yaml import YAML
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.core import TyperArgument, TyperOption
from typer.main import get_command

from polygrain.cli.main import app as commands
from polygrain.config.graph import items_of, one

ROOT = Path(__file__).parents[2]
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
TYPES = {"integer": "whole number", "string": "text", "boolean": "true or false", "object": "names"}


def models() -> dict[str, type[BaseModel]]:
    """The pydantic model of each section of params.yaml; `lists` is what stands above the sections."""
    stages = [file.stem for file in sorted((ROOT / "stages").glob("*.py")) if file.stem != "__init__"]
    result = {"lists": importlib.import_module("polygrain.config.lists").Lists}
    modules = {stage: importlib.import_module(f"stages.{stage}") for stage in stages}
    return result | {stage: module.Params for stage, module in modules.items() if hasattr(module, "Params")}


def held_class(schema: dict) -> tuple[str, str]:
    """The class that a value holds, or "", and the way to it: `.*` into a mapping, `[]` into a list."""
    if "$ref" in schema:
        return schema["$ref"].removeprefix("#/$defs/"), ""
    mapped = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    ways = [("", part) for part in schema.get("anyOf", [])] + [("[]", schema.get("items"))]
    for way, part in ways + [(".*", part) for part in mapped]:
        name, rest = held_class(part) if isinstance(part, dict) else ("", "")
        if name:
            return name, way + rest
    return "", ""


def kind(schema: dict) -> str:
    """What a value may be, in words."""
    if "anyOf" in schema:
        return " or ".join(map(kind, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items') or schema['prefixItems'][0])}"
    plain = schema.get("type", "section")
    limits = ", ".join(f"{sign} {schema[name]}" for name, sign in BOUNDS.items() if name in schema)
    return f"{TYPES.get(plain, plain)} {limits}".strip()


def rows(schema: dict, classes: dict, shared: set[str], values: object = None, prefix: str = "") -> Iterator[list[str]]:
    """Key, value, kind and description of each key; a class that only this key holds follows with its own keys."""
    for key, value in schema.get("properties", {}).items():
        name, way = held_class(value)
        given = values.get(key, ...) if isinstance(values, dict) else ...
        shown = "" if given is ... or isinstance(given, dict) or len(str(given)) > 60 else f"`{json.dumps(given)}`"
        words = f"keys of [{name}](#params-{name.lower()})" if name in shared else kind(value)
        yield [f"`{prefix}{key}{way}`", shown, words, value.get("description", "")]
        if name and name not in shared:
            yield from rows(classes[name], classes, shared, None if way else given, f"{prefix}{key}{way}.")


def table(head: str, lines: Iterable[list[str]]) -> list[str]:
    # What Markdown or a table would take for markup, outside of code.
    cells = [[re.sub(r"(`[^`]*`)|([|*<])", lambda m: m[1] or f"\\{m[2]}", text) for text in line] for line in lines]
    return [head, re.sub(r"[^|]+", "---", head), *(f"| {' | '.join(line)} |" for line in cells), ""]


def params_text() -> str:
    values = YAML(typ="safe").load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    schemas = {name: model.model_json_schema() for name, model in models().items()}
    classes = {name: part for schema in schemas.values() for name, part in schema.pop("$defs", {}).items()}
    text = json.dumps([schemas, classes])
    shared = {name for name in classes if text.count(f'"#/$defs/{name}"') > 1}
    lines = []
    for name, schema in {**schemas, **{name: classes[name] for name in sorted(shared)}}.items():
        is_stage = name in schemas and name != "lists"
        about = importlib.import_module(f"stages.{name}").__doc__ if is_stage else schema.get("description", "")
        # What a stage reads and writes is laid out by spaces.
        about = re.sub(r"^(Reads .*?)(?=\n\n|\Z)", r"```\n\1\n```", about.strip(), flags=re.M | re.DOTALL)
        lines += [f"(params-{name.lower()})=", f"## {name}", "", about, ""]
        given = values if name == "lists" else values.get(name)
        lines += table("| key | value | allowed | meaning |", rows(schema, classes, shared, given))
    return "\n".join(lines)


def word(parameter: TyperOption | TyperArgument) -> str:
    """How an option or an argument is written on the line."""
    is_option = isinstance(parameter, TyperOption)
    words = parameter.opts if is_option else [parameter.metavar or parameter.name.upper()]
    return ", ".join(f"`{word}`" for word in words)


def commands_text() -> str:
    lines = []
    for name, command in get_command(commands).commands.items():
        about, *examples = command.help.split("Example: ")
        examples = [" ".join(example.split()) for example in examples]
        lines += [f"(command-{name})=", f"## polygrain {name}", "", about.strip(), "", "```", *examples, "```", ""]
        given = [parameter for parameter in command.params if parameter.name != "help"]
        lines += table("| word | meaning |", [[word(parameter), parameter.help or ""] for parameter in given])
    return "\n".join(lines)


def stages_text() -> str:
    """A table of all stages in the order of dvc.yaml, by what their commands read."""
    graph, values = (
        YAML(typ="safe").load((ROOT / f"{name}.yaml").read_text(encoding="utf-8")) for name in ("dvc", "params")
    )
    lines = []
    for stage, entry in graph["stages"].items():
        name = f"`{stage}@{entry['foreach'][2:-1]}`" if "foreach" in entry else f"`{stage}`"
        off = ", off by default" if items_of(entry, values) in ({}, []) else ""
        read = [dep.split("/")[1] for dep in one(entry)["deps"] if dep.startswith("data/")]
        read = ["each item's folder" if "$" in word else f"`{word}`" for word in read]
        other = ["files" for dep in one(entry)["deps"] if not dep.startswith(("data/", "${root}"))]
        lines.append([name, one(entry)["desc"] + off, ", ".join(dict.fromkeys(read + other))])
    return "\n".join(table("| stage | what it does | from |", lines))


MADE = {"params-reference": params_text, "command-reference": commands_text, "stages-reference": stages_text}


class Reference(SphinxDirective):
    """Sections of Markdown, made by the function that the directive's name stands for."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(MADE[self.name](), allow_section_headings=True)


def as_rest(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Our docstrings are plain text with `code`: reST wants two backticks, and no other markup."""
    text = "" if "Alias for field number" in lines[0] else "\n".join(lines)  # of a named tuple
    escape = re.compile(r"`([^`]+)`|([*|\\]|_(?=\W))")
    lines[:] = escape.sub(lambda m: f"``{m[1]}``" if m[1] else f"\\{m[2]}", text).splitlines()


def setup(app: Sphinx) -> dict[str, bool]:
    for name in MADE:
        app.add_directive(name, Reference)
    app.connect("autodoc-process-docstring", as_rest)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
