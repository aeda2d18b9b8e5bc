import socket

import pytest

from polygrain.app.page.server import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_listen__on_this_machine(host: str) -> None:
    with listen(host, 0) as listening, socket.create_connection(listening.getsockname(), timeout=5):
        assert listening.getsockname()[0].startswith("127.")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "8.8.8.8"])
def test_listen__refuses_what_others_can_reach(host: str) -> None:
    with pytest.raises(ValueError, match=f"host is {host}, which others can reach.*leave it at 127.0.0.1.*ssh -L 4300"):
        listen(host, 4300)


def test_listen__refuses_no_address_and_a_port_that_is_taken() -> None:
    with pytest.raises(ValueError, match="which is no address: leave it"):
        listen("here.example", 4300)
    with listen("127.0.0.1", 0) as first, pytest.raises(ValueError, match="is taken: choose another"):
        listen("127.0.0.1", first.getsockname()[1])
