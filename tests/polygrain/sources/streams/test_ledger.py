from contextlib import closing

from polygrain.sources.streams.ledger import Ledger, Reached


def test_ledger__keeps_what_was_reached_and_forgets_the_rest(tmp_path):
    with closing(Ledger(tmp_path / "a/ledger.sqlite")) as ledger:
        assert ledger.reached == Reached() and ledger.is_labelled is None
        assert ledger.keep(0, "b", "cat", (1, 2, 3, "s")) is None
        ledger.reject("z", "empty file")
        ledger.reach(2, 7, 4)
        ledger.keep(1, "c", "dog", (1, 2, 3, "t"))
        ledger.reject("y", "empty file")
    with closing(Ledger(tmp_path / "a/ledger.sqlite")) as ledger:
        assert ledger.reached == Reached(2, 7, 4) and ledger.is_labelled
        assert list(ledger.rows()) == [("b", "cat", 1, 2, 3, "s")] and ledger.classes() == {"cat": 1}
        assert list(ledger.rejections()) == [("z", "empty file")] and ledger.rejected() == 1
        ledger.clear()
    with closing(Ledger(tmp_path / "a/ledger.sqlite")) as ledger:
        assert ledger.reached == Reached() and ledger.rejected() == 0


def test_keep__a_copy_and_a_name_are_there_once(tmp_path):
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        ledger.keep(0, "a", "", (1, 1, 1, "s"))
        assert ledger.keep(1, "b", "", (1, 1, 1, "s")) == "duplicate of a"
        assert ledger.keep(1, "a", "", (1, 1, 1, "t")) == "its name is there twice"
        assert ledger.is_labelled is False
