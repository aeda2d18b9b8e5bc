"""A real ssh server on loopback, with a key of its own and nothing of the system's configuration."""

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline import server

PROGRAM = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of `<folder>/remote` as DVC takes it, and the file of the key that opens it.

    `<folder>/.ssh/known_hosts` knows the server's key.
    """
    port, key, host = server.free_port(), folder / "key", folder / "host"
    for file in (key, host):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    (folder / ".ssh").mkdir()
    known = f"[127.0.0.1]:{port} {host.with_suffix('.pub').read_text()}"
    (folder / ".ssh/known_hosts").write_text(known)
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nPidFile none\nAuthorizedKeysFile {key}.pub\n"
        "PasswordAuthentication no\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nSubsystem sftp internal-sftp\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with subprocess.Popen([PROGRAM, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE, text=True) as process:
        assert "listening" in process.stderr.readline(), "sshd did not start"
        try:
            yield f"ssh://{getpass.getuser()}@127.0.0.1:{port}{folder}/remote", str(key)
        finally:
            process.terminate()
