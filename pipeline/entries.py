"""dvc.yaml as `make graph` leaves it: a person writes each stage's command, the rest of its entry is made from that.

Made are `deps`, `params` and `outs`: the words of the command are the paths of `main`; the sources of a stage are its
import closure; its values, lists and seed are what `main` takes and reads. Of these lines a person keeps two kinds
alone: a dependency that is no word of the command, and the keys of the stage's own section, if it needs not all.
"""

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
from ruamel.yaml import YAML

from polygrain.config.lists import Lists
from polygrain.config.versions import PACKAGES
from polygrain.store import imports
from polygrain.store.drafts import drafted

LIBRARY = imports.ROOT / "polygrain"
ALONE = ("losses", "grappa", "gsp", "mpcl", "tll")  # in these rooms a module is a dependency; elsewhere its folder is
TABLES = [*LIBRARY.rglob("*.j2"), *LIBRARY.rglob("*.csv")]
Made = dict[str, list[str]]


def filled(text: str) -> str:
    """The text of a dvc.yaml with all lines that are made."""
    return with_lines(text, made)


def written(text: str) -> str:
    """The text of a dvc.yaml without the lines that are made."""
    return with_lines(text, kept)


def with_lines(text: str, lines_of: Callable[[str, dict[str, Any]], Made]) -> str:
    """The text with these lines behind the command of each stage, in place of those that stand there."""
    stages = YAML(typ="safe").load(text)["stages"]

    def entry(match: re.Match[str]) -> str:
        stage = match[1]
        if stage not in stages:
            return match[0]
        indent = " " * (6 if "do" in stages[stage] else 4)
        block = rf"^{indent}(?:%s):.*\n(?:{indent}[ -].*\n)*"
        lines = lines_of(stage, stages[stage].get("do", stages[stage]))
        parts = [[f"{key}:", *(f"  - {item}" for item in items)] for key, items in lines.items() if items]
        behind = "".join(f"{indent}{line}\n" for part in parts for line in part)
        rest = re.sub(block % "deps|params|outs", "", match[0], flags=re.MULTILINE)
        return re.sub(block % "cmd", lambda command: command[0] + behind, rest, flags=re.MULTILINE)

    return re.sub(r"^  (\w+):\n(?: {4}.*\n)+", entry, text, flags=re.MULTILINE)


def kept(stage: str, entry: dict[str, Any]) -> Made:
    """The dependencies and params of an entry that only a person can know."""
    words = shlex.split(entry["cmd"])
    deps = [dep for dep in entry.get("deps", []) if not dep.startswith(("data/", "${root}/")) and dep not in words]
    return {"deps": deps, "params": [key for key in entry.get("params", []) if str(key).startswith(f"{stage}.")]}


def made(stage: str, entry: dict[str, Any]) -> Made:
    """All dependencies, params and outputs of an entry."""
    own, (main, run) = kept(stage, entry), parsed(imports.ROOT / f"stages/{stage}.py")
    words = shlex.split(entry["cmd"])[3:]
    paths = [*takewhile(lambda word: not word.startswith("--"), words)]
    names, given = words[len(paths) :: 2], words[len(paths) + 1 :: 2]
    items = {name.removeprefix("--").replace("-", "_"): word for name, word in zip(names, given, strict=True)}
    count = sum(argument.arg.startswith("output") for argument in main.args.args)  # of the last paths
    read, outs = paths[:-count], paths[-count:]
    section = [] if own["params"] or ast.unparse(run.args[1]) == "None" else [stage]
    values = {ast.literal_eval(keyword.value) for keyword in run.keywords} | lists_read(stage, main, items)
    values |= {"seed"} & {argument.arg for argument in main.args.kwonlyargs}
    return {
        "deps": [*read, *own["deps"], *rooms(stage)],
        "params": [*section, *own["params"], *sorted(values), *versions(stage)],
        "outs": outs,
    }


def parsed(file: Path) -> tuple[ast.FunctionDef, ast.Call]:
    """`main` of a stage's file, and the call of `command.run` at its end."""
    functions = {node.name: node for node in imports.nodes(file) if isinstance(node, ast.FunctionDef)}
    calls = [node for node in imports.nodes(file) if isinstance(node, ast.Call)]
    return functions["main"], next(call for call in calls if ast.unparse(call.func) == "command.run")


def lists_read(stage: str, main: ast.FunctionDef, items: dict[str, str]) -> set[str]:
    """Full names of the lists that the sources of a stage read, and of single items that `main` takes from them.

    DVC sees a folder, not which names belong in it. What methods of `Params` read is left out: they check values.
    """
    found, seen = set(), set()
    for node in ast.walk(main):
        if isinstance(node, ast.Subscript) and (name := list_of(node.value)):
            item = ast.unparse(node.slice)
            if word := items.get(item) or (f"${{{item}}}" if item.startswith("item.") else None):
                found.add(f"{name}.{word}")
                seen.add(node.value)
    for file in imports.sources(stage).values():
        nodes = imports.nodes(file)
        checks = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "Params"]
        seen |= {node for check in checks for node in ast.walk(check)}
        found |= {field for node in nodes if node not in seen and (name := list_of(node)) for field in fields_of(name)}
    return {name for name in found if name.partition(".")[0] == name or name.partition(".")[0] not in found}


def list_of(node: ast.AST) -> str | None:
    """The attribute of `lists`, or of `run.lists`, that a node reads."""
    is_one = isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] == "lists"
    return node.attr if is_one else None


def fields_of(name: str) -> set[str]:
    """The lists behind an attribute of `Lists`: itself, or those that a property or method reads."""
    if name in Lists.model_fields:
        return {name} - {"root", "versions"}
    member = getattr(Lists, name, None)
    text = inspect.getsource(getattr(member, "fget", member)) if member else ""
    return set(re.findall(r"self\.(\w+)", text)) & set(Lists.model_fields)


def versions(stage: str) -> Iterator[str]:
    """The libraries whose versions decide a stage's result; none for a page, which computes nothing."""
    names = {name.split(".")[0] for file in imports.sources(stage).values() for name in imports.names(file)}
    used = sorted(PACKAGES[name] for name in names & PACKAGES.keys())
    if used and not stage.endswith("report"):
        yield f"${{versions}}: [{', '.join(used)}]"


def rooms(stage: str) -> list[str]:
    """The file of a stage, and the folders of its imports, or single files of some rooms."""
    first, *files = imports.sources(stage).values()
    below = [file for file in {*files, *tables_read([first, *files])} if file.name != "__init__.py"]
    found = {file if file.parent.name in ALONE else file.parent for file in below}
    paths = [first, *sorted(path for path in found if not found & set(path.parents))]
    return [f"${{root}}/{path.relative_to(imports.ROOT).as_posix()}" for path in paths]


def tables_read(files: Iterable[Path]) -> set[Path]:
    """Tables and templates that modules name, by their path below polygrain or by their name in the same folder."""
    found = set()
    for file in files:
        words = {node.value for node in imports.nodes(file) if isinstance(node, ast.Constant)}
        for path in TABLES:
            below = path.relative_to(LIBRARY).as_posix()
            is_named = {below, below.removesuffix(".html.j2"), below.removesuffix(".md.j2")} & words
            if is_named or (path.name in words and path.parent == file.parent):
                found.add(path)
    todo = [file for file in found if file.suffix == ".j2"]
    while todo:  # what templates extend, include or import
        tree = jinja2.Environment().parse(todo.pop().read_text(encoding="utf-8"))
        named = {LIBRARY / str(name) for name in jinja2.meta.find_referenced_templates(tree)} - found
        found |= named
        todo += named
    return found


if __name__ == "__main__":
    file = imports.ROOT / "dvc.yaml"
    text = filled(file.read_text(encoding="utf-8"))
    with drafted(file) as draft:
        draft.write_text(text, encoding="utf-8")
