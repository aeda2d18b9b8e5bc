"""What counts as an attempt to reach the network, and one command that works without one."""

import subprocess

import pytest

from benchmarks.hostile import network


def test_outside__counts_what_is_not_this_machine(tmp_path):
    trace = tmp_path / "trace"
    near = [
        'connect(3, {sa_family=AF_INET, sin_port=htons(4200), sin_addr=inet_addr("127.0.0.1")}, 16) = 0',
        'connect(3, {sa_family=AF_INET6, sin6_port=htons(1), inet_pton(AF_INET6, "::1", &sin6_addr)}, 28) = 0',
        'connect(3, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENOENT',
    ]
    far = [
        'connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.1")}, 16) = -1 ENETUNREACH',
        'sendto(3, "x", 1, 0, {sa_family=AF_INET6, inet_pton(AF_INET6, "2001:db8::1", &sin6_addr)}, 28) = -1',
    ]
    trace.write_text("\n".join(near + far))
    assert network.outside(trace) == ["192.0.2.1", "2001:db8::1"]
    assert network.outside(tmp_path / "none") == []


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run([*network.ALONE, "true"], capture_output=True).returncode != 0,
    reason="this user may make no namespace without a network",
)
def test_run__repro_and_a_stage_that_asks(tmp_path):
    assert [outcome.verdict for outcome in network.run(1, 0, tmp_path)] == ["fine"]
    ask = ["python3", "-c", "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.connect(('192.0.2.1', 53))"]
    code, _ = network.alone(ask, tmp_path, tmp_path / "trace")
    assert code != 0 and network.outside(tmp_path / "trace") in ([], ["192.0.2.1"])
