"""Of each stage that a run needs a digest of its code and values, without comments, docstrings, layout and seed."""

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from polygrain.config import graph
from polygrain.config.compose import read_params
from polygrain.store import imports


def tree_of(node: Any) -> Any:
    """A syntax tree as lists, without fields that are empty: versions of Python differ in these."""
    if isinstance(node, list):
        return [tree_of(one) for one in node if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if isinstance(node, ast.AST):
        fields = ast.iter_fields(node)
        return [type(node).__name__, *([name, tree_of(value)] for name, value in fields if value not in (None, []))]
    return repr(node)


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


@cache
def code_of(file: Path) -> str:
    return digest(tree_of(imports.nodes(file)[0]))


@cache
def whole_graph(root: Path) -> dict[str, Any]:
    return read_params(root / "dvc.yaml")


def stages_of(values: dict[str, Any]) -> dict[str, Any]:
    """The stages that these values use, as dvc.yaml has them."""
    return dict(graph.used(whole_graph(imports.ROOT), values)["stages"])


def digests(values: dict[str, Any], targets: Iterable[str]) -> dict[str, str]:
    """{stage: digest} of the targets and all that they read from, directly or not."""
    stages, result = stages_of(values), {}
    makers = {out.split("/")[1]: name for name, body in stages.items() for out in graph.one(body)["outs"]}
    todo = [target.partition("@")[0] for target in targets]
    while todo:
        if (name := todo.pop()) not in result:
            params = [
                key for key in graph.one(stages[name]).get("params", []) if isinstance(key, str) and key != "seed"
            ]
            given = {key: graph.value_of(key.partition(".${")[0], values) for key in params}
            result[name] = digest([given, {key: code_of(file) for key, file in imports.sources(name).items()}])
            read = [path.split("/") for path in graph.paths_read(stages[name], values) if path.startswith("data/")]
            todo += [makers[folder] for _, folder, *_ in read if folder in makers]
    return dict(sorted(result.items()))


def command_digest(module: str) -> dict[str, str]:
    """The same of a command with all that it imports."""
    files = imports.closure([imports.ROOT.joinpath(*module.split(".")).with_suffix(".py")])
    return {module: digest({name: code_of(file) for name, file in files.items()})}
