"""`polygrain worker`: one machine more for the team's runs."""

from enum import StrEnum
from typing import Annotated

import typer

from polygrain.cli.options import Remote


class Queue(StrEnum):
    gpu = "gpu"
    cpu = "cpu"


def worker(
    remote: Remote = None,
    queues: Annotated[list[Queue], typer.Option("--queue", help="stages of this kind; may be given twice")] = (  # type: ignore[assignment]
        Queue.gpu,
        Queue.cpu,
    ),
    name: Annotated[str, typer.Option(help="what the pages call this machine; without it, its host name")] = "",
) -> None:
    """Run stages in this clone for `polygrain flow --workers` of others.

    Example: polygrain worker --remote s3://bucket/prefix --queue gpu
    """
    from pipeline import workers

    workers.work(remote, list(map(str, queues)), name)
