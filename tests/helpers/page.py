"""What a test asks of a page: its addresses, tags, pictures and visible text."""

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Addresses, tags and visible text of a page; fails on a tag that is closed without being open."""

    VOID = frozenset({"meta", "link", "img", "hr", "br", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.images: list[dict] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "action")]
        if tag in ("td", "th", "p", "small", "h2"):
            self.text += " "
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += text


def assert_loads_nothing(text: str) -> None:
    """A page opens offline: what it needs is inside it, a link leads to a place of its own, and no script may run."""
    page = Page(text)
    written = re.sub(r"data:image/jpeg;base64,[\w+/=]*", "", text)  # a picture's bytes may spell anything
    assert not re.search(r"https?://|url\(|@import|//[a-z]", written)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert "script" not in page.tags
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)[1]
    assert policy.startswith("default-src 'none';") and "script-src" not in policy
