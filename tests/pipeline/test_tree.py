"""Lists of files that lead out of their output are refused, whatever DVC would make of them."""

import json

import pytest
from benchmarks.hostile import remotes
from dvc_data.hashfile.tree import Tree

from pipeline import tree

ABC = {"a": "0" * 32, "b/c d": "1" * 32, "b/é.png": "2" * 32}


def test_read__an_honest_list():
    listed = Tree.from_list([{"relpath": path, "md5": digest} for path, digest in ABC.items()])
    assert tree.read(listed.as_bytes()) == ABC and tree.read(b"[]") == {}


@pytest.mark.parametrize("name", remotes.LISTS)
def test_read__refuses(name):
    with pytest.raises(ValueError, match=r"is no list|names|gives|has "):
        tree.read(remotes.LISTS[name])


def test_read__says_what_and_why():
    with pytest.raises(ValueError, match=r"names '\.\./x', which does not stay in the output's folder"):
        tree.read(json.dumps([{"relpath": "../x", "md5": "0" * 32}]).encode())
    with pytest.raises(ValueError, match=r"gives 'x' the md5 '\.\./\.\./y', which is none"):
        tree.read(json.dumps([{"relpath": "x", "md5": "../../y"}]).encode())
