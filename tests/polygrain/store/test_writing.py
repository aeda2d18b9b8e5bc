import errno

import pytest

from polygrain.store.writing import DiskFull, writing


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_writing__a_full_disk_says_where_what_is_left_and_what_to_do(code):
    with pytest.raises(DiskFull) as raised, writing("all is kept"):
        raise OSError(code, "No space", "some/file")
    assert str(raised.value) == "the disk is full (No space: some/file); all is kept: free some space and run again"
    assert raised.value.errno == code


def test_writing__the_innermost_block_speaks():
    with pytest.raises(DiskFull, match="inner: free"), writing("outer"), writing("inner"):
        raise OSError(errno.ENOSPC, "No space")


def test_writing__leaves_other_errors_alone():
    with pytest.raises(PermissionError), writing("all is kept"):
        raise PermissionError(errno.EACCES, "no")
