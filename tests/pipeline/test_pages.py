"""A run of the default graph, on a few drawn images, as a person sees it: in a real browser."""

import os
import sys

import pytest
from PIL import Image

from pipeline import graph, secret, server
from tests.helpers.browser import CHROMIUM, browse
from tests.helpers.project import new_project
from tests.pipeline import toy


def pages(api: str, to: str) -> str:
    """The link to a page, for one look."""
    return server.link(api, os.environ[secret.VARIABLE], to)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")
def test_pages__show_every_stage_of_the_default_graph(api, tmp_path):
    project = new_project(tmp_path / "project")
    toy.run(project, sys.executable, "-m", "polygrain", "flow", PREFECT_API_URL=api, timeout=600)
    assert graph.to_do(graph.load(project)) == []
    run = server.call(api, "/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})[0]
    only = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}, "key": {"any_": ["stages"]}}}
    (table,) = server.call(api, "/artifacts/filter", only)

    picture = tmp_path / "run.png"
    browse(pages(api, f"/runs/flow-run/{run['id']}"), f"--screenshot={picture}")
    with Image.open(picture) as shown:
        assert shown.size == (1400, 1100)
        # The graph is drawn on a canvas: its bars are in the green of finished tasks.
        drawn = shown.convert("RGB").crop((280, 110, 1390, 500))
        green = sum(count for count, (r, g, b) in drawn.getcolors(1 << 24) if g > 120 and r < 90 and b < 130)
        assert green > 1000
    said = browse(pages(api, f"/runs/flow-run/{run['id']}"), "--dump-dom")
    assert run["name"] in said and "Completed" in said
    said = browse(pages(api, f"/artifacts/artifact/{table['id']}"), "--dump-dom")
    missing = [stage.name for stage in graph.load(project) if stage.name not in said]
    assert missing == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")
def test_pages__open_by_a_link_once(api, tmp_path):
    """One click shows them; the link again, or the address alone in another browser, shows nothing."""
    link = pages(api, "/")
    assert "Dashboard" in browse(link, "--dump-dom", f"--user-data-dir={tmp_path / 'first'}")
    said = browse(link, "--dump-dom", f"--user-data-dir={tmp_path / 'second'}")
    assert "a link works once" in said and "Dashboard" not in said
    said = browse(api.removesuffix("/api"), "--dump-dom", f"--user-data-dir={tmp_path / 'second'}")
    assert "Dashboard" not in said and "Login" in said


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")
def test_pages__curves_are_followed_by_themselves(api, tmp_path):
    toy.flow(toy.make(tmp_path / "toy", second=2), PREFECT_API_URL=api)
    said = browse(pages(api, "/live"), "--dump-dom", f"--user-data-dir={tmp_path / 'browser'}")
    assert "<h2>second@s01</h2><p>epoch 2/2: loss 0.1</p>" in said
    assert 'alt="curves of second@s01"' in said and 'src="data:image/svg+xml;base64,' in said
    said = browse(f"{api.removesuffix('/api')}/live", "--dump-dom", f"--user-data-dir={tmp_path / 'other'}")
    assert "open it by a link that" in said and "second@" not in said
