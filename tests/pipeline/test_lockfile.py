"""The same entries in the graph's order, byte for byte."""

import random

import pytest

from pipeline import lockfile

HEAD = "schema: '2.0'\nstages:\n"
ENTRIES = {
    "a": "  a:\n    cmd: x\n    outs:\n    - path: p\n      md5: 1\n",
    "b@1": "  b@1:\n    cmd: |-\n      one\n      two\n",
    "b@2": "  b@2:\n    cmd: long\n      goes on\n    params:\n      params.yaml:\n        k: 1\n",
    "old": "  old:\n    cmd: no longer in the graph\n",
}


@pytest.mark.parametrize("seed", range(5))
def test_sorted_entries__any_order_becomes_the_graphs(seed):
    names = list(ENTRIES)
    random.Random(seed).shuffle(names)
    shuffled = HEAD + "".join(ENTRIES[name] for name in names)
    expected = HEAD + "".join(ENTRIES[name] for name in ("b@2", "a", "b@1", "old"))
    assert lockfile.sorted_entries(shuffled, ["b@2", "missing", "a", "b@1"]) == expected


def test_sorted_entries__what_follows_the_stages_stays():
    text = HEAD + ENTRIES["b@1"] + ENTRIES["a"] + "datasets:\n- name: d\n"
    assert (
        lockfile.sorted_entries(text, ["a", "b@1"]) == HEAD + ENTRIES["a"] + ENTRIES["b@1"] + "datasets:\n- name: d\n"
    )


@pytest.mark.parametrize(
    "text", ["", "schema: '2.0'\n", "stages: {}\n", "stages:\n# by hand\n  b:\n    c: 1\n  a:\n    c: 1\n"]
)
def test_sorted_entries__what_it_does_not_know_stays(text):
    assert lockfile.sorted_entries(text, ["a", "b"]) == text


def test_sorted_entries__the_projects_own_lock_loses_nothing():
    from tests.pipeline.toy import ROOT

    text = (ROOT / "dvc.lock").read_text()
    backwards = lockfile.sorted_entries(text, ["report", "seeds"])
    assert backwards != text and sorted(backwards.splitlines()) == sorted(text.splitlines())
    assert backwards.splitlines()[2] == "  report:"
