from polygrain.sources import installed, names
from polygrain.sources.datasets.load import READERS


def test_names__each_has_what_reads_it():
    assert all(callable(getattr(installed, name)) for name in names.INSTALLED)
    assert set(names.PUBLIC) == set(READERS)
    assert (
        len(names.KNOWN) == len(set(names.KNOWN)) == len(names.INSTALLED) + len(names.PUBLIC) + len(names.STREAMS) + 2
    )
