"""The classes in a signature by their full names, so that a page links each to its own entry."""

import ast
import copy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def all_classes() -> set[str]:
    """The full names of all classes that have an entry: what a signature may link to."""
    files = [file for top in ("stages", "pipeline") for file in (ROOT / top).rglob("*.py")]
    trees = {dotted(file): ast.parse(file.read_text(encoding="utf-8")) for file in files}
    return {
        f"{name}.{node.name}" for name, tree in trees.items() for node in tree.body if isinstance(node, ast.ClassDef)
    }


class FullNames(ast.NodeTransformer):
    """Writes our own classes in annotations with their modules, so that each links to its own entry.

    Two rooms may each have a `Config`. The page shows the last word only (`python_use_unqualified_type_names`).
    """

    def __init__(self, tree: ast.Module, name: str, classes: set[str]) -> None:
        self.classes = classes
        self.names = {node.name: f"{name}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.full(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self.full(node)

    def full(self, node: ast.Name | ast.Attribute) -> ast.expr:
        first, _, rest = ast.unparse(node).partition(".")
        known = ".".join(filter(None, [self.names.get(first, first), rest]))
        return ast.Name(known) if known in self.classes else node

    def apply(self, node: Function) -> Function:
        """The function with its annotations changed; its default values stay as they are."""
        node = copy.deepcopy(node)
        given = node.args
        for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
            if argument is not None and argument.annotation is not None:
                argument.annotation = self.visit(argument.annotation)
        node.returns = self.visit(node.returns) if node.returns else None
        return node
