"""An object store, by the listing that `polygrain new` writes: its tars, Parquet files or images."""

from pathlib import Path

from polygrain.sources.kind import Ask, Found, Kind, Listing
from polygrain.sources.streams import place, stream


class Remote(Kind):
    def find(self, given: str, listing: Listing | None) -> Found | None:
        """Of tars and Parquet files the first is read, and the others taken to be like it."""
        if "://" not in given:
            return None
        location = place.remote(given)
        whole = first = stream.of_remote(location)
        if whole.kind != "objects":
            first = whole._replace(place=whole.place._replace(files=whole.place.files[:1]))
        content = first.content()
        times = whole.place.bytes / max(1, first.place.bytes)
        content = content._replace(classes={name: round(count * times) for name, count in content.classes.items()})
        return Found("remote", given, *content, is_estimate=times > 1, listing=place.text_of(location))

    def open(self, raw: Path, ask: Ask) -> stream.Stream:
        return stream.of_remote(place.listed(raw), ask.files)


KIND = Remote()
