"""The reference of the command line as a directive: a section for each command, from its own words."""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.main import get_command

from docs.extensions.params import cell
from docs.extensions.sections import ROOT
from polygrain.cli import main as command


def row(parameter: TyperOption | TyperArgument) -> str:
    is_option = parameter.param_type_name == "option"
    words = (
        ", ".join(f"`{word}`" for word in parameter.opts)
        if is_option
        else f"`{parameter.metavar or parameter.name.upper()}`"
    )
    default = parameter.default
    is_shown = default is not None and default is not False and not callable(default) and str(default)
    shown = f"`{' '.join(map(str, default)) if isinstance(default, tuple | list) else default}`" if is_shown else ""
    return f"| {words} | {shown} | {cell(getattr(parameter, 'help', None) or '')} |"


def markdown(name: str, found: TyperCommand) -> str:
    said, *examples = (found.help or "").split("Example: ")
    shown = [" ".join(example.split()) for example in examples]
    lines = [f"(command-{name})=", f"## polygrain {name}", "", said.strip(), "", "```", *shown, "```", ""]
    given = [parameter for parameter in found.params if parameter.name != "help"]
    if given:
        lines += ["| word | without it | what it is |", "|---|---|---|", *map(row, given), ""]
    return "\n".join(lines)


class CommandReference(SphinxDirective):
    """All commands, as sections of the page that asks for them."""

    def run(self) -> list[nodes.Node]:
        for file in [Path(__file__), *(ROOT / "polygrain").rglob("*.py")]:
            self.env.note_dependency(str(file))
        commands = get_command(command.app).commands
        text = "\n".join(markdown(name, found) for name, found in commands.items())
        return self.parse_text_to_nodes(re.sub(r"[ ]{2,}\n", "\n", text), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
