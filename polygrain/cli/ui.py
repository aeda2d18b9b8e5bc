"""`polygrain ui`: the pages to watch runs on."""

from typing import Annotated

import typer


def ui(port: Annotated[int, typer.Option(min=1024, max=65535, help="on 127.0.0.1 only")] = 4200) -> None:
    """Start the pages to watch runs on, and print their link.

    Example: polygrain ui --port 4300
    """
    from pipeline import server

    server.main(port)
