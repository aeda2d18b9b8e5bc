"""What the pages show of a run, made from what the stages wrote."""

import base64

from pipeline import artifacts
from pipeline.execution import Outcome
from pipeline.graph import Stage

PAGE = """<html><head><style>:root { --ink: #123; } svg text { fill: var(--ink); }</style></head><body>
<figure class="panel"><figcaption>mean <span>over tasks</span></figcaption>
<svg class="figure" viewBox="0 0 3 4" role="img"><text x="1">a &amp; b</text></svg></figure>
<svg class="mark"><rect/></svg>
<figure><figcaption>Photograph</figcaption><img alt="" src="data:image/png;base64,AAAA"></figure>
<figure><figcaption>Many</figcaption>
<img src="data:image/png;base64,AAAA"><img src="data:image/png;base64,BBBB"></figure>
<figure><figcaption>Elsewhere</figcaption><img src="https://example.org/x.png"></figure>
</body></html>"""


def stage(name: str, *outs) -> Stage:
    return Stage(name, (), True, {}, "", outs)


def test_pictures__figures_of_one_picture_each_as_a_file_of_its_own():
    chart, photograph = artifacts.pictures(PAGE)
    assert chart.caption == "mean over tasks" and photograph.caption == "Photograph"
    assert photograph.address == "data:image/png;base64,AAAA"
    kind, content = chart.address.split(";base64,")
    drawing = base64.b64decode(content).decode()
    assert kind == "data:image/svg+xml"
    assert drawing.startswith(
        '<svg class="figure" viewBox="0 0 3 4" role="img" xmlns="http://www.w3.org/2000/svg"><style>'
    )
    assert "--ink: #123" in drawing and drawing.endswith('<text x="1">a &amp; b</text></svg>')


def test_pictures__large_ones_stay_in_the_report(monkeypatch):
    monkeypatch.setattr(artifacts, "MOST_BYTES", 100)
    assert [picture.caption for picture in artifacts.pictures(PAGE)] == ["Photograph"]
    monkeypatch.setattr(artifacts, "MOST_PICTURES", 0)
    assert artifacts.pictures(PAGE) == []


def test_charts__with_captions_of_any_stage_that_reports(tmp_path):
    (tmp_path / "table.md").write_text("# Results\n")
    assert artifacts.charts(tmp_path) == ""
    (tmp_path / "index.html").write_text(PAGE)
    said = artifacts.charts(tmp_path)
    assert said.startswith("**mean over tasks**\n\n![mean over tasks](data:image/svg") and said.count("![") == 2
    assert artifacts.reports([stage("a", tmp_path), stage("b", tmp_path / "none"), stage("c")]) == [tmp_path]


def test_stage_rows__every_stage_in_the_graphs_order():
    rows = artifacts.stage_rows([stage("a"), stage("b")], {"b": Outcome("ran", 1.26, ("x",))})
    assert rows == [
        {"stage": "a", "result": "up to date", "seconds": 0.0},
        {"stage": "b", "result": "ran", "seconds": 1.3},
    ]


def test_slug__only_what_a_key_may_hold():
    assert artifacts.slug("evaluation@k32/Über_all-") == "evaluation-k32-ber-all"
