"""Of each stage that a run needs a digest of its code and values, but for comments, docstrings, layout and the seed."""

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


class Bare(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def text_of(node: Any) -> str:
    """A syntax tree without its empty fields: in `ast.dump` they differ between versions of Python."""
    if isinstance(node, list):
        return f"[{','.join(map(text_of, node))}]"
    fields = ast.iter_fields(node) if isinstance(node, ast.AST) else ()
    inner = [f"{name}={text_of(value)}" for name, value in fields if value not in (None, [])]
    return f"{type(node).__name__}({','.join(inner)})" if isinstance(node, ast.AST) else repr(node)


@cache
def code_of(file: Path) -> str:
    return text_of(Bare().visit(ast.parse(file.read_bytes())))


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def stages_of(values: dict[str, Any]) -> dict[str, Any]:
    """The stages that these values use, as dvc.yaml has them."""
    return dict(graph.used(read_params(imports.ROOT / "dvc.yaml"), values)["stages"])


def digests(values: dict[str, Any], targets: Iterable[str]) -> dict[str, str]:
    """{stage: digest} of the targets and all that they read from, directly or not."""
    stages, found = stages_of(values), {}
    makers = {out.split("/")[1]: name for name, body in stages.items() for out in graph.one(body)["outs"]}
    todo = [target.partition("@")[0] for target in targets]
    while todo:
        if (name := todo.pop()) not in found:
            params = [
                key.partition(".${")[0] for key in graph.one(stages[name]).get("params", []) if isinstance(key, str)
            ]
            code = {file: code_of(path) for file, path in imports.sources(name).items()}
            found[name] = digest(code, {key: graph.value_of(key, values) for key in params if key != "seed"})
            read = [path.split("/") for path in graph.paths_read(stages[name], values) if path.startswith("data/")]
            todo += [makers[folder] for _, folder, *_ in read if folder in makers]
    return dict(sorted(found.items()))


def command_digest(module: str) -> dict[str, str]:
    file = imports.module(module)
    return {module: digest({name: code_of(path) for name, path in imports.closure([file] if file else []).items()})}
