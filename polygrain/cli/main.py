"""The command line, `polygrain`: one command for each file of polygrain/cli.

Exit codes: 0 done, 1 it could not be done (one line on stderr says why and what to do), 2 a wrong word on the line.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from polygrain.cli.embed import embed
from polygrain.cli.export import export
from polygrain.cli.fetch import fetch
from polygrain.cli.flow import flow
from polygrain.cli.model import model
from polygrain.cli.new import new
from polygrain.cli.run import run
from polygrain.cli.search import search
from polygrain.cli.share import share
from polygrain.cli.smooth import smooth
from polygrain.cli.ui import ui
from polygrain.cli.worker import worker
from polygrain.runner import threads

RUN = "'polygrain[run]'"
EXTRAS = {
    "faiss": "'polygrain[cpu]', or 'polygrain[gpu]' for a GPU",
    "prefect": "'polygrain[flow]'",
    **dict.fromkeys(["configobj", "dvc", "filelock", "google_crc32c", "matplotlib", "omegaconf", "psutil"], RUN),
    **dict.fromkeys(["pytorch_metric_learning", "ruamel", "torchvision", "zarr"], RUN),
}
"""The extra that brings a module which the light install does without."""


app = typer.Typer(
    name="polygrain",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def announced(command: Callable[..., None], begins: str) -> Callable[..., None]:
    """The command, and before it a line that says how it begins: its libraries take seconds to load."""

    @wraps(command)
    def begun(**words: Any) -> None:
        texts = {name: ", ".join(map(str, word)) if isinstance(word, list) else word for name, word in words.items()}
        typer.echo(f"{command.__name__}: {begins.format(**texts)} ...", err=True)
        command(**words)

    return begun


BEGINNINGS: dict[Callable[..., None], str] = {
    new: "looking at {images}",
    **dict.fromkeys([run, flow, share, fetch], "reading the graph"),
    worker: "starting",
    embed: "loading the model {model}",
    search: "opening {source}",
    smooth: "reading {source}",
    **dict.fromkeys([model, export], "loading the model {folder}"),
    ui: "starting the pages",
}
for command, begins in BEGINNINGS.items():
    app.command()(announced(command, begins))


@app.callback()
def about() -> None:
    """Find, from your images alone and without labels, which directions of an encoder's numbers tell them apart."""


def main() -> None:
    os.environ.update(threads.variables())
    try:
        app(prog_name="polygrain")
    except UnicodeEncodeError as error:
        name, locale = ascii(error.object)[:200], sys.getfilesystemencoding()
        sys.exit(f"error: {name} is no UTF-8 in a locale of {locale}: set PYTHONUTF8=1, or rename it")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        if error.name and (extra := EXTRAS.get(error.name.partition(".")[0])):
            sys.exit(f"error: {error.name} is not installed: pip install {extra}")
        if error.name != "pipeline":
            raise
        sys.exit("error: this command runs in a clone of polygrain: make one, `make install`, and run its own program")


if __name__ == "__main__":
    main()
