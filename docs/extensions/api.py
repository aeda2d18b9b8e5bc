"""Pages of the API from the sources: one per room, its modules in order, with signatures and docstrings.

No room is imported: the text of the sources says it all, shapes such as `Float[Tensor, "image dim"]` included, and a
page can be built where torch is missing. The rooms are found on disk, so a new one needs no line here.
"""

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

from docs.extensions.full_names import ROOT, FullNames, Function, all_classes, dotted

PAGES = ROOT / "docs/reference/api"
PUBLIC = PAGES / "public.inc"  # what docs/reference/api.md includes
INDENT = "   "
PUBLIC_ROOMS = [f"polygrain.{room}" for room in ("app", "encoder", "clustering", "retrieval", "losses", "gsp.poolings")]


def rooms() -> Iterator[tuple[str, str, Path]]:
    """(page, title, folder): the stages, the rooms below polygrain, the pipeline."""
    core = ROOT / "polygrain"
    yield "stages", "stages: the pipeline", ROOT / "stages"
    if modules(core):
        yield "polygrain", "polygrain itself", core
    for folder in sorted(path for path in core.iterdir() if (path / "__init__.py").exists()):
        yield folder.name, folder.name, folder
    yield "pipeline", "pipeline: DVC and Prefect", ROOT / "pipeline"


def modules(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]


def escape(text: str) -> str:
    """Plain words and `code` as reST; nothing else in our docstrings is markup."""
    parts = re.split(r"`([^`]+)`", text)
    plain = [re.sub(r"([\\*_|`])", r"\\\1", part) for part in parts[::2]]
    code = [rf"\ ``{part}``\ " for part in parts[1::2]]
    return "".join(sum(zip(plain, [*code, ""], strict=True), ()))


def paragraph(text: str) -> str:
    """A paragraph or list with its code marked; what is laid out by spaces stays as it is."""
    lines = text.splitlines()
    if lines[0].startswith("- ") and all(line.startswith(("- ", "  ")) for line in lines):
        items = re.split(r"^- ", text, flags=re.M)[1:]
        return "\n".join("- " + escape(" ".join(item.split())) for item in items)
    if any(re.search(r"\S {2,}\S|^\s", line) for line in lines) or re.match(r"\w+ = |>>>", lines[0]):
        return "::\n\n" + textwrap.indent(text, INDENT)
    return escape(" ".join(lines))


def to_rst(docstring: str | None) -> str:
    if not docstring:
        return ""
    whole = textwrap.dedent(docstring) if docstring.startswith("\n") else docstring
    return "\n\n".join(paragraph(part.strip("\n")) for part in re.split(r"\n\s*\n", whole.strip())) + "\n"


def directive(kind: str, signature: str, *content: str) -> str:
    body = "\n".join(part for part in content if part)
    return f".. py:{kind}:: {signature}\n\n{textwrap.indent(body, INDENT)}\n"


def arguments(node: Function, is_method: bool) -> str:
    names = ast.unparse(node.args)
    return re.sub(r"^(self|cls)(, |$)", "", names) if is_method else names


def function(node: Function, kind: str = "function") -> str:
    marks = {ast.unparse(mark) for mark in node.decorator_list}
    if "property" in marks:
        returned = f"{INDENT}:type: {ast.unparse(node.returns)}\n" if node.returns else ""
        return f".. py:property:: {node.name}\n{returned}\n{textwrap.indent(to_rst(ast.get_docstring(node)), INDENT)}\n"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    signature = f"{node.name}({arguments(node, kind == 'method' and 'staticmethod' not in marks)}){returned}"
    return directive(kind, signature, to_rst(ast.get_docstring(node)))


def description(value: ast.expr | None) -> str:
    """The description of a pydantic `Field(...)`."""
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg == "description":
                return ast.literal_eval(keyword.value)
    return ""


def klass(node: ast.ClassDef, names: FullNames) -> str:
    own = [names.apply(item) for item in node.body if isinstance(item, Function)]
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    start = next((item for item in own if item.name == "__init__"), None)
    bases = ", ".join(map(ast.unparse, node.bases))
    lines = [f"- ``{ast.unparse(f.target)}: {ast.unparse(f.annotation)}``\\ " for f in fields]
    said = [f": {escape(text)}" if (text := description(f.value)) else "" for f in fields]
    lines = [line + text for line, text in zip(lines, said, strict=True)]
    shown = [item for item in own if not item.name.startswith("_")]
    return directive(
        "class",
        f"{node.name}({arguments(start, True)})" if start else node.name,
        to_rst(ast.get_docstring(node)),
        f"A ``{bases}``.\n" if bases else "",
        "\n".join(lines) + "\n",
        *[function(item, "method") for item in shown],
    )


def entries(file: Path, classes: set[str]) -> dict[str, str]:
    """What a module defines for others, by name, in the order of the source."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = FullNames(tree, dotted(file), classes)
    return {
        node.name: klass(node, names) if isinstance(node, ast.ClassDef) else function(names.apply(node))
        for node in tree.body
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
    }


def module(file: Path, classes: set[str], line: str = "-") -> str:
    """The module's docstring, then its public functions and classes."""
    name = dotted(file)
    title = name.removeprefix("polygrain.")
    said = to_rst(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))))
    return "\n".join([heading(title, line), f".. py:module:: {name}\n", said, *entries(file, classes).values()])


def public(classes: set[str]) -> str:
    """The names that rooms export, each with its docstring."""
    lines = []
    for room in PUBLIC_ROOMS:
        package = importlib.import_module(room)
        lines.append(f".. py:currentmodule:: {room}\n")
        for name in package.__all__:
            home = getattr(package, name).__module__.replace(".", "/")
            lines.append(entries(ROOT / f"{home}.py", classes)[name])
    return "\n".join(lines)


def heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n"


def opening(folder: Path) -> str:
    file = folder / "__init__.py"
    return to_rst(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))) if file.exists() else ""


def page(title: str, folder: Path, classes: set[str]) -> str:
    """A room: what its `__init__` says, its modules, then the same for the rooms in it."""
    parts = [heading(title, "="), opening(folder), *[module(file, classes) for file in modules(folder)]]
    if folder.name not in ("stages", "polygrain"):
        for inner in sorted(path for path in folder.rglob("*") if (path / "__init__.py").exists()):
            title = ".".join(inner.relative_to(folder.parent).parts)
            parts += [heading(title, "-"), opening(inner), *[module(file, classes, "~") for file in modules(inner)]]
    return "\n".join(parts)


def write_all(app: Sphinx) -> None:
    classes = all_classes()
    texts = {PAGES / f"{name}.rst": page(title, folder, classes) for name, title, folder in rooms()}
    listed = "\n".join(f"{INDENT}{file.stem}" for file in texts)
    texts[PAGES / "index.rst"] = (
        heading("API", "=") + "\nOne page for each room: the library ``polygrain``, the stages, and what drives the "
        "stages. Shapes stand in the signatures: ``Float[Tensor, 'image dim']`` is a tensor of floats with a row for "
        f"each image.\n\n.. toctree::\n   :maxdepth: 1\n\n{listed}\n"
    )
    texts[PUBLIC] = public(classes)
    PAGES.mkdir(exist_ok=True)
    for stale in set(PAGES.iterdir()) - set(texts):
        stale.unlink()
    for file, text in texts.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
