"""Starts a stage in several processes, on this machine and others: `several.py STAGE ARGUMENTS...`.

POLYGRAIN_TORCHRUN holds torchrun's options: "--nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr a --master-port
29500", say. They are split into words and no shell sees them. POLYGRAIN_PROCESSES=4 is short for four processes on this
machine. Each machine starts the same stage with the same arguments; the machine of rank 0 gets the output.
"""

import argparse
import os
import shlex
import socket
import sys
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.run import get_args_parser, parse_min_max_nnodes, run

from polygrain.compute.processes import PATIENCE, patience
from polygrain.runner.command import end_with_parent

OPTIONS = "POLYGRAIN_TORCHRUN"
PROCESSES = "POLYGRAIN_PROCESSES"


class Parser(argparse.ArgumentParser):
    """torchrun's own, but for its errors."""

    def error(self, message: str) -> None:
        raise ValueError(message)


def options(text: str, stage: str, arguments: list[str]) -> argparse.Namespace:
    """torchrun's options for a stage; ValueError says which of the given words are none."""
    parser = get_args_parser()
    parser.__class__ = Parser
    try:
        words = shlex.split(text)
        found = parser.parse_args([*words, "-m", f"stages.{stage}", *arguments])
        parse_min_max_nnodes(found.nnodes)
        if found.training_script != f"stages.{stage}" or found.no_python or found.run_path:
            raise ValueError("only options are allowed, not what is to be run")
    except (ValueError, RuntimeError) as error:
        example = "--nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr HOST --master-port 29500"
        raise ValueError(f"{OPTIONS} is {text!r}: {error}; torchrun's options are allowed, as in {example!r}") from None
    seconds = int(patience())
    wait = f"join_timeout={seconds},timeout={seconds}"  # of `c10d`, and of `static`
    found.rdzv_conf = ",".join(filter(None, [wait, found.rdzv_conf]))
    return found


def call_nodes(found: argparse.Namespace) -> dist.TCPStore | None:
    """Waits until all machines are there, where each has a number; TimeoutError names those that are missing.

    The store returned keeps torchrun's port open until that takes it over.
    """
    nodes = parse_min_max_nnodes(found.nnodes)[1]
    if nodes == 1 or found.standalone or found.rdzv_backend != "static":
        return None
    wait, keys = timedelta(seconds=patience()), [f"polygrain/node/{number}" for number in range(nodes)]
    address = f"{found.master_addr}:{found.master_port}"
    try:
        store = dist.TCPStore(
            found.master_addr, found.master_port, None, found.node_rank == 0, wait, False, multi_tenant=True
        )
        store.set(keys[found.node_rank], socket.gethostname())
        store.wait(keys, wait)
    except dist.DistStoreError:
        absent = [str(number) for number, key in enumerate(keys) if not store.check([key])]
        raise TimeoutError(
            f"node {', '.join(absent)} of {nodes} did not come to {address} within {patience():.0f} s: start the stage "
            f"there too (--node-rank {absent[0]}), or give it more time ({PATIENCE})"
        ) from None
    except dist.DistNetworkError as error:
        raise TimeoutError(
            f"node 0 does not answer at {address} within {patience():.0f} s: start the stage there too ({error})"
        ) from None
    return store


def main(stage: str, arguments: list[str]) -> None:
    end_with_parent()
    text = os.environ.get(OPTIONS) or f"--standalone --nproc-per-node={os.environ[PROCESSES]}"
    try:
        found = options(text, stage, arguments)
        kept = call_nodes(found)
        run(found)
        del kept
    except ChildFailedError as error:
        first, failure = error.get_first_failure()
        sys.exit(
            f"error: rank {first} ended with {failure.exitcode}; its own error stands above, or in its machine's log"
        )
    except RendezvousError as error:
        sys.exit(
            f"error: {found.nnodes} machines were to meet at {found.rdzv_endpoint}, and not all came within "
            f"{patience():.0f} s ({type(error).__name__}: {error}): start the stage on each of them"
        )
    except (ValueError, OSError, dist.DistError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
