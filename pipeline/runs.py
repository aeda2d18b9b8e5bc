"""The run cache: what an entry of it may say.

An entry records one run: command, hashes of what was read, values, and the hashes of what was written. DVC looks it up
by a name that is a hash of all but the last, and then believes the whole entry, the paths of its outputs too. So an
entry must be what its name says: then command, inputs, values and output paths are this clone's own, or it is never
looked up. What is left to its writer is which bytes these very outputs get.
"""

import copy
import re

from dvc.schema import COMPILED_LOCK_FILE_STAGE_SCHEMA
from dvc.stage.cache import _get_cache_hash
from ruamel.yaml import YAML, YAMLError
from voluptuous import Invalid

from pipeline import tree

PLACE = re.compile(r"([0-9a-f]{2})/(\1[0-9a-f]{62})/([0-9a-f]{64})")
LEFTOVER = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}/[^/]+\.tmp")
"""A push that was killed leaves these; they are nobody's."""
MOST_BYTES = 2**18
MOST_VALUES = 100_000
OUT = {"path": str, "hash": str, "md5": str, "size": int, "nfiles": int}


def read(data: bytes, place: str) -> dict:
    """The entry that lies at `place` (`<2>/<key>/<value>`); ValueError says what is wrong with it."""
    found = PLACE.fullmatch(place)
    if found is None:
        raise ValueError("lies where no run does")
    try:
        # The reader in C, which DVC takes, overflows its stack where something lies in itself deep enough.
        values = YAML(typ="safe", pure=True).load(data.decode())
        if weight(values) > MOST_VALUES:
            raise ValueError(f"holds more than {MOST_VALUES} values")
        entry = COMPILED_LOCK_FILE_STAGE_SCHEMA(values)
        names = _get_cache_hash(copy.deepcopy(entry), key=True), _get_cache_hash(copy.deepcopy(entry))
    except (YAMLError, UnicodeDecodeError, Invalid, TypeError, RecursionError) as error:
        raise ValueError(f"is no record of a run: {error!s:.200}") from error
    if names != found.groups()[1:]:
        raise ValueError("is not the run that its name says")
    for out in entry.get("outs", []):
        require_plain(out)
    return entry


def require_plain(out: dict) -> None:
    """ValueError for an output with more than a path and a hash: DVC would read lists of files, modes, versions."""
    if wrong := [key for key, value in out.items() if not (key in OUT and type(value) is OUT[key])]:
        raise ValueError(f"gives the output {out['path']!r:.200} {', '.join(map(repr, wrong))}")
    if out.get("hash") != "md5" or not tree.OBJECT.fullmatch(out.get("md5", "").removesuffix(".dir")):
        raise ValueError(f"gives the output {out['path']!r:.200} no md5")


def weight(value: object, known: dict[int, int] | None = None) -> int:
    """How many values there are, those that stand twice by a YAML alias counted twice, without walking them twice."""
    known = {} if known is None else known
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES + 1  # what is met again inside of itself has no end
        known[id(value)] = 1 + sum(
            weight(item, known) for item in (value.values() if isinstance(value, dict) else value)
        )
    return known[id(value)]
