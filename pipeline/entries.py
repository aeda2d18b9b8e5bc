"""dvc.yaml as `make graph` leaves it: a person writes each stage's command, the rest of its entry is made from that.

Made are `deps`, `params` and `outs`: the words of the command are the paths of `main`; the sources of a stage are its
import closure; its values, lists and seed are what `main` takes and reads. Of these lines a person keeps two kinds
alone: a dependency that is no word of the command and lies outside `data/`, `stages/` and `polygrain/`, and the keys of
the stage's own section, if it needs not all. Any other plain item goes, and is printed; what is never made, such as a
comment, is refused.
"""

import ast
import difflib
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from textwrap import indent as indented
from typing import Any

import jinja2
import jinja2.meta
from ruamel.yaml import YAML, YAMLError

from polygrain.config.lists import Lists
from polygrain.config.versions import PACKAGES
from polygrain.store import imports
from polygrain.store.drafts import drafted

LIBRARY = imports.ROOT / "polygrain"
ALONE = ("losses", "grappa", "gsp", "mpcl", "tll")  # in these rooms a module is a dependency; elsewhere its folder is
TABLES = [*LIBRARY.rglob("*.j2"), *LIBRARY.rglob("*.csv")]
KEYS = ("deps", "params", "outs")
Made = dict[str, list[str]]


def filled(text: str) -> str:
    """The text of a dvc.yaml with all lines that are made.

    ValueError: a stage lacks its file, `main`, output, a path or its entry, or a line that is never made would go.
    """
    files = {file.stem for file in imports.ROOT.glob("stages/[a-z]*.py")}
    if missing := sorted(files - YAML(typ="safe").load(text)["stages"].keys()):
        raise ValueError(f"stages/{missing[0]}.py has no entry: write {missing[0]!r} below `stages:`")
    return with_lines(text, made)


def written(text: str) -> str:
    """The text of a dvc.yaml without the lines that are made."""
    return with_lines(text, kept)


def with_lines(text: str, lines_of: Callable[[str, dict[str, Any]], Made]) -> str:
    """The text with these lines behind the command of each stage, in place of those that stand there."""
    load = YAML(typ="safe").load
    stages = load(text)["stages"]
    bodies = {stage: entry.get("do", entry) for stage, entry in stages.items()}
    behind = {}
    for stage, body in bodies.items():
        parts = {f"{key}:\n": items for key, items in lines_of(stage, body).items() if items}
        behind[stage] = "".join(key + "".join(f"  - {item}\n" for item in items) for key, items in parts.items())

    def entry(match: re.Match[str]) -> str:
        stage = match[1]
        if stage not in stages:
            return match[0]
        indent = " " * (6 if "do" in stages[stage] else 4)
        block = rf"^{indent}(?:%s):.*\n(?:(?: *(?:#.*)?\n)*{indent}[ -].*\n)*"
        old = re.compile(block % "|".join(KEYS), re.MULTILINE)
        lost = [line.strip() for part in old.findall(match[0]) for line in part.splitlines() if re.search(r"\s#", line)]
        items = [item for key in KEYS for item in bodies[stage].get(key) or []]
        lost += [f"{item}" for item in items if isinstance(item, dict) and [*item] != ["${versions}"]]
        if lost:
            raise ValueError(f"move or delete in {stage}, where deps, params and outs are made anew: {'; '.join(lost)}")
        new = indented(behind[stage], indent)
        return re.sub(block % "cmd", lambda command: command[0] + new, old.sub("", match[0]), flags=re.MULTILINE)

    result = re.sub(r"^  ([\w-]+):.*\n(?:(?: {4}.*| *)\n)+", entry, text, flags=re.MULTILINE)
    for stage, body in bodies.items():
        for key in KEYS:
            body.pop(key, None)
        body.update(load(behind[stage]) or {})
    after = {}
    with suppress(YAMLError):
        after = load(result)["stages"]
    if wrong := [stage for stage in stages if after.get(stage) != stages[stage]]:
        raise ValueError(f"cannot fill the entry of {wrong[0]}: indent all its lines as other entries do")
    return result


def kept(stage: str, entry: dict[str, Any]) -> Made:
    """The dependencies and params of an entry that only a person can know."""
    words = shlex.split(entry["cmd"])
    rooms = ("data/", "${root}/stages/", "${root}/polygrain/")
    deps = [dep for dep in map(str, entry.get("deps") or []) if not dep.startswith(rooms) and dep not in words]
    return {"deps": deps, "params": [key for key in entry.get("params") or [] if str(key).startswith(f"{stage}.")]}


def made(stage: str, entry: dict[str, Any]) -> Made:
    """All dependencies, params and outputs of an entry."""
    own, (main, run) = kept(stage, entry), parsed(stage)
    words = shlex.split(entry["cmd"])[3:]
    paths = [*takewhile(lambda word: not word.startswith("--"), words)]
    names, given = words[len(paths) :: 2], words[len(paths) + 1 :: 2]
    arguments = arguments_of(stage, main)
    # DVC deletes outs before a run, so that a path in a wrong place would cost its data.
    outs = [path for path, name in zip(paths, arguments, strict=False) if name.startswith("output")]
    read = [path for path in paths if path not in outs]
    if len(paths) != len(arguments) or len(names) != len(given) or not outs:
        raise ValueError(
            f"{stage}: name the output's parameter of `main` `output...`, and give the command a path for each of "
            f"({', '.join(arguments)}), then options with their values"
        )
    items = {name.removeprefix("--").replace("-", "_"): word for name, word in zip(names, given, strict=True)}
    section = [] if own["params"] or ast.unparse(run.args[1]) == "None" else [stage]
    values = {ast.literal_eval(keyword.value) for keyword in run.keywords} | lists_read(stage, main, items)
    values |= {"seed"} & {argument.arg for argument in main.args.kwonlyargs}
    return {
        "deps": [*read, *own["deps"], *rooms(stage)],
        "params": [*section, *own["params"], *sorted(values), *versions(stage)],
        "outs": outs,
    }


def parsed(stage: str) -> tuple[ast.FunctionDef, ast.Call]:
    """`main` of a stage's file, and the call of `command.run` at its end."""
    file = imports.ROOT / f"stages/{stage}.py"
    nodes = imports.nodes(file) if file.exists() else []
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "main"]
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "command.run"]
    if not functions or not calls:
        raise ValueError(f"stage {stage!r} needs stages/{stage}.py with `def main` and `command.run(main, Params)`")
    return functions[0], calls[0]


def arguments_of(stage: str, main: ast.FunctionDef) -> list[str]:
    """The names of the paths that `main` takes, each alone or in a NamedTuple."""
    nodes = (node for file in imports.sources(stage).values() for node in imports.nodes(file))
    fields = {
        node.name: [ast.unparse(line.target) for line in node.body if isinstance(line, ast.AnnAssign)]
        for node in nodes
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases)
    }
    kinds = [(argument.arg, argument.annotation) for argument in main.args.args]
    return [name for word, kind in kinds for name in fields.get(kind and ast.unparse(kind), [word])]


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
    before = file.read_text(encoding="utf-8")
    try:
        text = filled(before)
    except ValueError as error:
        sys.exit(f"error: dvc.yaml: {error}")
    with drafted(file) as draft:
        draft.write_text(text, encoding="utf-8")
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True), n=0))
