"""A run of the default graph, on a few drawn images, as a person sees it: in a real browser."""

import shutil
import subprocess
import sys

import pytest
from PIL import Image

from pipeline import graph, server
from tests.helpers.project import new_project
from tests.pipeline import toy

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)


def browse(address: str, *what: str) -> str:
    """What headless Chromium prints about a page whose scripts had 25 (virtual) seconds."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--enable-unsafe-swiftshader",
    ]
    options += ["--window-size=1400,1100", "--virtual-time-budget=25000"]
    done = subprocess.run([CHROMIUM, *options, *what, address], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")
def test_pages__show_every_stage_of_the_default_graph(api, tmp_path):
    project = new_project(tmp_path / "project")
    toy.run(project, sys.executable, "-m", "pipeline.flows", PREFECT_API_URL=api, timeout=600)
    assert graph.to_do(graph.load(project)) == []
    run = server.call(api, "/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})[0]
    only = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}, "key": {"any_": ["stages"]}}}
    (table,) = server.call(api, "/artifacts/filter", only)
    pages = api.removesuffix("/api")

    picture = tmp_path / "run.png"
    browse(f"{pages}/runs/flow-run/{run['id']}", f"--screenshot={picture}")
    with Image.open(picture) as shown:
        assert shown.size == (1400, 1100)
        # The graph is drawn on a canvas: its bars are in the green of finished tasks.
        drawn = shown.convert("RGB").crop((280, 110, 1390, 500))
        green = sum(count for count, (r, g, b) in drawn.getcolors(1 << 24) if g > 120 and r < 90 and b < 130)
        assert green > 1000
    said = browse(f"{pages}/runs/flow-run/{run['id']}", "--dump-dom")
    assert run["name"] in said and "Completed" in said
    said = browse(f"{pages}/artifacts/artifact/{table['id']}", "--dump-dom")
    missing = [stage.name for stage in graph.load(project) if stage.name not in said]
    assert missing == []
