"""Asks the process that has every stage loaded to fork one: `python -IS warm.py STAGE ARGUMENTS...`.

Stands where `python -m stages.STAGE ARGUMENTS...` would: the same descriptors, folder and environment, signals handed
on, the same exit code. Where nobody answers, or pipeline/warm.py on the other side would not give what a fresh start
gives, it becomes that very program. It imports nothing that takes time to load.
"""

import json
import os
import signal
import socket
import struct
import sys

SOCKET = "POLYGRAIN_STAGES"
"""Names the other side's socket, in Linux's abstract name space: no file that a kill could leave behind."""
LENGTH = struct.Struct("<I")
TAKEN = b"+"


def uid_of(peer: socket.socket) -> int:
    """Whose process is at the other end: names of sockets are everyone's."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid


def ask(name: str, stage: str, arguments: list[str]) -> int | None:
    """The exit code of the stage that was forked for this request; None where none was."""
    umask = os.umask(0o077)
    os.umask(umask)
    request = json.dumps([stage, arguments, os.getcwd(), umask, sys.executable, dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(f"\0{name}")
            if uid_of(server) != os.getuid():
                return None
            socket.send_fds(server, [LENGTH.pack(len(request))], [0, 1, 2])
            server.sendall(request)
            if server.recv(1) != TAKEN:
                return None
        except OSError:
            return None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: server.send(bytes([number])))
        heard = b""
        try:
            while part := server.recv(64):
                heard += part
        except ConnectionResetError:
            pass
    # A server that is killed takes its stages along, and says nothing.
    code = int(heard or -signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if (answer := ask(os.environ[SOCKET], sys.argv[1], sys.argv[2:])) is not None:
        os._exit(answer)
    os.execvp("python", ["python", "-m", f"stages.{sys.argv[1]}", *sys.argv[2:]])
