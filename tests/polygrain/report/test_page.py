import math
import re
import shutil
from pathlib import Path

import jinja2
import jinja2.meta
import pytest

from polygrain.report import page
from tests.helpers import driven

TEMPLATES = list(page.LIBRARY.rglob("*.j2"))
TABLES = {file.with_suffix("").with_suffix(".html.j2") for file in TEMPLATES if file.name.endswith(".md.j2")}
PAGES = sorted(file for file in TABLES.intersection(TEMPLATES) if file.parent.name != "sections")


def named(file: Path) -> str:
    return file.relative_to(page.LIBRARY).as_posix()


@pytest.mark.parametrize(
    ("value", "text", "trend"), [(1.24, "+1.2", 1), (-1.26, "−1.3", -1), (-0.04, "±0.0", 0), (0.06, "+0.1", 1)]
)
def test_signed__shows_the_sign_of_what_is_shown(value, text, trend):
    assert page.signed(value) == text
    assert page.trend(value) == trend and page.signed(math.nan) == "–"


def test_render__a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        page.render("findings/report.md.j2", {})


@pytest.mark.parametrize("file", PAGES, ids=named)
def test_pages__extend_the_base_and_bring_no_frame_or_colour_of_their_own(file):
    text = file.read_text(encoding="utf-8")
    tree = jinja2.Environment().parse(text)
    assert [node.template.value for node in tree.find_all(jinja2.nodes.Extends)] == ["report/base.html.j2"]
    assert not re.search(r"<!doctype|<html|<head>|<style|<body|<footer|prefers-color-scheme|#[0-9a-f]{3,6};", text)


@pytest.mark.parametrize("file", TEMPLATES, ids=named)
def test_templates__load_nothing_from_outside(file):
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"https?://|url\(|@import|<script|<iframe|(src|href)=\"//", text)


WIDE = """{% extends "report/base.html.j2" %}{% from "report/macros.html.j2" import scroll %}
{% block title %}{% endblock %}{% block heading %}{% endblock %}{% block content %}
<section><p>{{ "x" * 99 }}</p><p><code>{{ "y" * 99 }}</code></p>
{% call scroll("") %}<tbody><tr><th>row</th>{% for _ in range(20) %}<td>12.3</td>{% endfor %}</tr></tbody>{% endcall %}
</section>{% endblock %}"""


@driven.needed
def test_base__on_a_phone_a_wide_table_scrolls_in_its_card_under_its_first_column(tmp_path, monkeypatch):
    shutil.copytree(page.LIBRARY / "report", tmp_path / "report")
    (tmp_path / "wide.html.j2").write_text(WIDE)
    monkeypatch.setattr(page, "LIBRARY", tmp_path)
    (tmp_path / "wide.html").write_text(page.render("wide.html.j2", {}))
    with driven.at((tmp_path / "wide.html").as_uri(), driven.PHONE) as browser:
        browser.until("document.readyState == 'complete'")
        assert driven.reaching_out(browser) == []
        assert browser.value("document.querySelector('.scroll').scrollLeft = 400") == 400
        assert browser.value("document.querySelector('th').getBoundingClientRect().left") >= 0
