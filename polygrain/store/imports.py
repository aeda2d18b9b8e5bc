"""The imports of source files, read from their text: the modules loaded in a process depend on how it was started."""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# How a stage is run, and what its values may be, is no dependency of it.
LEFT_OUT = ("polygrain/runner/", "polygrain/config/")


def sources(stage: str) -> dict[str, Path]:
    """The file of a stage and all that it imports, directly or not, but for `LEFT_OUT`."""
    return closure([ROOT / f"stages/{stage}.py"], LEFT_OUT)


def closure(files: Iterable[Path], left_out: tuple[str, ...] = ()) -> dict[str, Path]:
    """These files and the project's modules that they import, directly or not, by their path below the root."""
    found: dict[str, Path] = {}
    todo = [*files]
    while todo:
        file = todo.pop()
        name = file.relative_to(ROOT).as_posix()
        if name not in found and not name.startswith(left_out):
            found[name] = file
            todo += imported(file)
    return found


@cache
def imported(file: Path) -> list[Path]:
    """The project's modules that a file imports itself; a package that lists its modules imports them all."""
    is_list = file.name == "__init__.py" and '.glob("[a-z]*.py")' in file.read_text(encoding="utf-8")
    return [path for path in map(module, sorted(names(file))) if path] + is_list * sorted(file.parent.glob("*.py"))


@cache
def names(file: Path) -> set[str]:
    """Dotted names of a file's imports; `from a import b` is a.b where that is a module of the project, else a."""
    found = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if module(name) else str(node.module) for name in inner}
    return found


@cache
def nodes(file: Path) -> list[ast.AST]:
    """Every node of a file's syntax tree."""
    return [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]


def module(name: str) -> Path | None:
    """The file of a dotted name, if it is a module or package of the project."""
    path = ROOT.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)
