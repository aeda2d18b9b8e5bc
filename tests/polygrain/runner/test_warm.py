"""The asking side alone; tests/pipeline/test_warm.py has both together."""

import os
import socket
import threading

import pytest

from polygrain.runner import warm


@pytest.fixture
def server():
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"\0polygrain-test-{os.getpid()}-{os.urandom(8).hex()}")
        made.listen()
        yield made


def answer(server, *parts):
    """Takes one request, and answers with these bytes."""

    def serve():
        connection, _ = server.accept()
        with connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
            for part in parts:
                connection.sendall(part)
            for descriptor in descriptors:
                os.close(descriptor)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_uid_of__is_the_user_at_the_other_end():
    one, other = socket.socketpair()
    with one, other:
        assert warm.uid_of(one) == os.getuid()


@pytest.mark.parametrize(("parts", "code"), [((b"-",), None), ((), None)])
def test_ask__none_where_it_is_refused_or_not_answered(server, parts, code):
    thread = answer(server, *parts)
    assert warm.ask(server.getsockname()[1:].decode(), "one", []) is code
    thread.join()


def test_ask__none_where_nobody_is():
    assert warm.ask("polygrain-nobody", "one", []) is None


def test_ask__another_users_server_hears_nothing(server, monkeypatch):
    monkeypatch.setattr(warm, "uid_of", lambda peer: os.getuid() + 1)
    assert warm.ask(server.getsockname()[1:].decode(), "one", []) is None
    connection, _ = server.accept()
    with connection:
        assert connection.recv(1) == b""
