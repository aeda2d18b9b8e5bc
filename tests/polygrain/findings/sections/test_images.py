from polygrain.findings.outcome import read_task
from polygrain.findings.sections import images
from tests.helpers.report_world import write_task


def test_left_out__counted_by_reason_the_most_first(tmp_path):
    given = [("a.jpg", "cut"), ("b.jpg", "duplicate of x"), ("c.jpg", "duplicate of y"), ("d.jpg", "same picture as x")]
    write_task(tmp_path / "one", ["a"], True, given)
    rows = images.left_out([read_task(tmp_path, "one")])
    assert [(row["reason"], row["files"]) for row in rows] == [
        ("duplicate of another", ["b.jpg", "c.jpg"]),
        ("cut", ["a.jpg"]),
        ("same picture as another", ["d.jpg"]),
    ]
