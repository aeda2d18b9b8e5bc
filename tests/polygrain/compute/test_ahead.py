import threading

import pytest

from polygrain.compute.ahead import ahead


def test_ahead__gives_every_item_in_order_with_what_was_loaded():
    for count in range(6):
        assert list(ahead(range(count), lambda i: i * i)) == [(i, i * i) for i in range(count)]


def test_ahead__loads_the_next_while_this_one_is_worked_on():
    started = [threading.Event() for _ in range(3)]
    items = ahead(range(3), lambda i: started[i].set())
    next(items)
    assert started[1].wait(5)


def test_ahead__reads_no_further_than_the_depth():
    taken = []

    def source():
        for i in range(10):
            taken.append(i)
            yield i

    items = ahead(source(), lambda i: i, depth=2)
    next(items)
    assert taken == [0, 1, 2]
    items.close()


def test_ahead__raises_what_loading_raised_in_its_turn():
    def load(i):
        if i == 1:
            raise OSError("gone")
        return i

    items = ahead(range(3), load)
    assert next(items) == (0, 0)
    with pytest.raises(OSError, match="gone"):
        next(items)
