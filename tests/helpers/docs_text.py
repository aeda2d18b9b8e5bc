"""README, CONTRIBUTING and docs/ as text: their blocks of code, inline code and commands."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
WRITTEN = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *sorted(WRITTEN)]
BLOCK = re.compile(r"(?:^<!-- run:? ?(?P<needs>.*?) ?-->\n)?^```(?P<kind>.*)\n(?P<code>(?:.*\n)*?)^```$", re.M)


class Block(NamedTuple):
    page: Path
    code: str
    kind: str
    needs: str | None


def name(path: object) -> str:
    return str(path.relative_to(ROOT)) if isinstance(path, Path) else ""


def blocks(page: Path) -> list[Block]:
    return [Block(page, met["code"], met["kind"], met["needs"]) for met in BLOCK.finditer(page.read_text())]


def inline(page: Path) -> list[str]:
    """What stands in single backticks outside the blocks."""
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", page.read_text()))


def commands(page: Path) -> list[str]:
    """Lines of shell blocks, and inline code that is a command; comments at the end of a line taken off."""
    lines = [line for block in blocks(page) if not block.kind for line in block.code.replace("\\\n", " ").splitlines()]
    lines += [code for code in inline(page) if re.match(r"(make|polygrain) \S|(\.venv/bin/)?(python|dvc) ", code)]
    return [re.sub(r"\s+#.*$", "", line).strip() for line in lines]
