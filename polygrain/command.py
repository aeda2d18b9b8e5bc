"""The command line, `polygrain`: one command for each file of polygrain/commands.

Exit codes: 0 done, 1 it could not be done (one line on stderr says why and what to do), 2 a wrong word on the line.
"""

import sys

import typer

from polygrain.commands.docs import docs
from polygrain.commands.embed import embed
from polygrain.commands.export import export
from polygrain.commands.fetch import fetch
from polygrain.commands.flow import flow
from polygrain.commands.model import model
from polygrain.commands.new import new
from polygrain.commands.run import run
from polygrain.commands.search import search
from polygrain.commands.serve import serve
from polygrain.commands.share import share
from polygrain.commands.ui import ui
from polygrain.commands.worker import worker

app = typer.Typer(
    name="polygrain",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (new, run, flow, ui, serve, share, fetch, worker, embed, search, export, model, docs):
    app.command()(command)


@app.callback()
def about() -> None:
    """Images from several domains, no labels, one frozen encoder: one embedding model that retrieves better."""


def main() -> None:
    try:
        app(prog_name="polygrain")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
