"""What a clone's own processes and its user's browser know, and nobody else: `.prefect/secret`.

It goes from here into environments and requests, never onto a command line, which every user of a machine can read.
"""

import base64
import hmac
import os
import secrets
import stat
import time
from pathlib import Path

from pipeline import private

VARIABLE = "PREFECT_API_AUTH_STRING"
"""Where Prefect's clients look for it."""
SHORTEST = 32


def of(root: Path) -> str:
    """The secret of the clone at `root`, drawn when first asked; ValueError if others could have read or set it."""
    file = private.own(root / ".prefect") / "secret"
    if not os.path.lexists(file):
        draft = file.with_name(f"secret.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"polygrain:{secrets.token_urlsafe(32)}\n")
        try:
            # Complete or absent, and the first of two that begin at once wins.
            os.link(draft, file)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    private.require_own(file, stat.S_ISREG, "file")
    if file.lstat().st_mode & 0o077:
        raise ValueError(f"others may read {file}: delete it, and a new one is drawn")
    found = file.read_text(encoding="utf-8").strip()
    if len(found) < SHORTEST or ":" not in found:
        raise ValueError(f"{file} holds {len(found)} characters and no secret: delete it, and a new one is drawn")
    return found


def basic(secret: str) -> str:
    """The secret as Prefect's pages keep it and its clients send it."""
    return base64.b64encode(secret.encode()).decode()


def sign(secret: str, purpose: str, words: str) -> str:
    """What only who knows the secret can say about these words; of no use for another purpose."""
    return hmac.new(secret.encode(), f"{purpose}:{words}".encode(), "sha256").hexdigest()


def proof(secret: str, host: str, words: str) -> str:
    """What a server at this address, and none that hands the question on to another, answers to these words."""
    return sign(secret, "proof", f"{host}:{words}")


def ticket(secret: str) -> str:
    """Lets one browser in, once, at a server that was started before now (pipeline/gate.py)."""
    issued = str(time.time_ns())
    return f"{issued}.{sign(secret, 'ticket', issued)}"


def issued(secret: str, ticket: str) -> int | None:
    """When the ticket was issued, in nanoseconds; None if it was not by someone who knows the secret."""
    moment, _, signature = ticket.partition(".")
    if not moment.isdecimal() or not hmac.compare_digest(signature.encode(), sign(secret, "ticket", moment).encode()):
        return None
    return int(moment)
