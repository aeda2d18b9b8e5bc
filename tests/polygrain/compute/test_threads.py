import time

import pytest
import torch

from polygrain.compute.threads import apart, threads


@pytest.fixture
def two():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_threads__stay_and_follow_torch(two):
    assert threads() is threads()
    kept = threads()
    torch.set_num_threads(1)
    assert threads() is not kept


def test_apart__gives_each_thread_one_and_takes_it_back(two):
    with apart() as pool:
        inside = list(pool.map(lambda _: (time.sleep(0.01), torch.get_num_threads())[1], range(4)))
    assert inside == [1] * 4 and torch.get_num_threads() == 2


def test_apart__takes_it_back_after_an_error(two):
    with pytest.raises(ZeroDivisionError), apart() as pool:
        list(pool.map(lambda x: 1 / x, [1, 0]))
    assert torch.get_num_threads() == 2
