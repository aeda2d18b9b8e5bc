"""What a stream of images holds, before it is one: `python -m polygrain.config.survey KIND WHERE [PATTERN]`.

KIND is tars, parquet or remote, WHERE a file, folder or address. Prints JSON: the images of each class ("" without
labels), about so many of remote tars and Parquet files, of which only the first is looked at; and a remote's listing.
"""

import json
import sys
from pathlib import Path

from polygrain.sources.streams import place, stream


def survey(kind: str, where: str, pattern: str = "*") -> dict[str, object]:
    """{classes, about, others, listing}; ValueError for what is no such stream."""
    if kind != "remote":
        found = stream.find(Path(where), kind, pattern)
        classes, others = found.classes()
        return {"classes": classes, "about": False, "others": others, "listing": None}
    whole = place.remote(where)
    found = stream.of_remote(whole, pattern)
    looked_at = None if found.kind == "objects" else 1
    first = found._replace(place=found.place._replace(files=found.place.files[:looked_at]))
    classes, others = first.classes()
    times = found.place.bytes / max(1, first.place.bytes)
    return {
        "classes": {name: round(count * times) for name, count in classes.items()},
        "about": times > 1,
        "others": others,
        "listing": place.text_of(whole),
    }


def main() -> None:
    try:
        print(json.dumps(survey(*sys.argv[1:])))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
