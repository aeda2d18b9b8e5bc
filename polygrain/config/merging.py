"""Values laid over values: what a profile's values.yaml means on top of the root's params.yaml.

1. A section is merged key by key, to any depth; whatever is no mapping is replaced.
2. A list of items (`tasks`, `granularities`, `models`, ...: the fields of `Lists`) is replaced whole. Its row "*" says
   what all rows have: the rows that stand beside it, or where none does, those that were there.
3. A mapping with the tag `!new` takes the place of the one below it. That is how mappings with free keys are set
   (`losses`, `poolings`, `kwargs`); everywhere else a key that is not known below is refused as a slip of the pen.
4. What is one value in the root (`one_set: *views`, `<<: *granularities`) stays one. Who overrides
   `fusion.augmentation` overrides `baseline.one_set` too, unless that has a value of its own; `models` has a row for
   every granularity.
"""

from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.scalarbool import ScalarBoolean

from polygrain.config import document
from polygrain.config.document import name

EACH = "*"
MERGED = "<<"


class New(dict):
    """A mapping that is not merged with what lies below it."""


class More(dict):
    """Rows of a list that join those below them."""


class Same(NamedTuple):
    """Stands for the value at another place of the root's file."""

    place: tuple[str | int, ...]


def parse(text: str, source: str) -> dict[str, Any]:
    """The mapping in a values.yaml, `!new` as `New`, `!more` as `More`; ValueError for anything that is none."""
    found = document.guarded(text, source, YAML().load)
    if found is None:
        return {}
    if not isinstance(found, CommentedMap) or found.tag.value:
        raise ValueError(f"{source} should be a mapping of sections, such as `adaptor: {{epochs: 3}}`")
    made = plain(found, source, ())
    document.require_plain(made, source)
    return made


def plain(value: Any, source: str, place: tuple[str | int, ...]) -> Any:
    """The value without what the reader of YAML adds to it."""
    tag = getattr(getattr(value, "tag", None), "value", None)
    known = {"!new": New, "!more": More} if len(place) == 1 else {"!new": New}
    if tag and not (tag in known and isinstance(value, CommentedMap)):
        raise ValueError(
            f"{source}: {name(place)} has the tag {tag}; known here: {' and '.join(known)}, before a mapping such as "
            "{a: 1}"
        )
    if isinstance(value, dict):
        # `items` of such a mapping holds what is merged into it by `<<`.
        for key in value:
            document.require_key(key, source, place)
        made = {str(key): plain(item, source, (*place, key)) for key, item in value.items()}
        return known[tag](made) if tag else made
    if isinstance(value, list):
        return [plain(item, source, (*place, index)) for index, item in enumerate(value)]
    if isinstance(value, ScalarBoolean):
        return bool(value)
    # A number keeps how it was written, and a name it was given by `&`, in classes of their own.
    return next((kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)), value)


def tree(text: str) -> dict[str, Any]:
    """The root's values, with `Same` where the file has an alias."""
    values = document.values(text, "params.yaml")
    if not isinstance(values, dict):
        raise ValueError("params.yaml holds no sections")
    return linked(YAML(typ="safe", pure=True).compose(text), values, {}, ())


def linked(node: Node, value: Any, places: dict, place: tuple[str | int, ...]) -> Any:
    """The value at one place; `places` knows the nodes met so far, since an alias is the same node again."""
    if id(node) in places:
        return Same(places[id(node)])
    places[id(node)] = place
    if not isinstance(node, MappingNode | SequenceNode):
        return value
    if isinstance(node, SequenceNode):
        return [linked(n, value[i], places, (*place, i)) for i, n in enumerate(node.value)]
    made: dict[str, Any] = {}
    for key_node, item in node.value:
        key = key_node.value
        if key == MERGED and id(item) not in places:
            raise ValueError(f"params.yaml: {name((*place, key))} takes one alias, such as `<<: *views`")
        made[key] = Same(places[id(item)]) if key == MERGED else linked(item, value[key], places, (*place, key))
    if MERGED in made:  # YAML merges one level deep: a mapping of its own takes the place of the merged one
        made = {key: New(item) if isinstance(item, dict) else item for key, item in made.items()}
    return made


def found_at(values: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        values = values[key]
    return values


def resolve(value: Any, values: dict[str, Any], place: tuple[str | int, ...] = ()) -> Any:
    """The value with everything written out that it has from elsewhere in `values`."""
    if isinstance(value, Same):
        try:
            return resolve(found_at(values, value.place), values, value.place)
        except (KeyError, IndexError, TypeError):
            raise ValueError(
                f"{name(place)} is the same as {name(value.place)} in the root's params.yaml, which is gone here: "
                f"give {name(place)} a value of its own"
            ) from None
    if isinstance(value, list):
        return [resolve(item, values, (*place, index)) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    own = {key: resolve(item, values, (*place, key)) for key, item in value.items() if key != MERGED}
    own = New(own) if isinstance(value, New) else own
    return overlay(resolve(value[MERGED], values, place), own) if MERGED in value else own


def overlay(below: Any, above: Any) -> Any:
    """Values without links over values without links, key by key."""
    if isinstance(above, New) or not isinstance(above, dict) or not isinstance(below, dict):
        return above
    return below | {key: overlay(below.get(key), item) for key, item in above.items()}


def merge(values: dict[str, Any], over: dict[str, Any], lists: set[str], source: str) -> dict[str, Any]:
    """The tree `values` with `over` laid over it; ValueError names a key that is not known there."""
    made = dict(values)
    for key, item in over.items():
        if key not in values:
            raise ValueError(unknown(source, (key,), values))
        if isinstance(item, More) and key not in lists:
            raise ValueError(f"{source}: {key} is a section and no list, so !more says nothing: leave it out")
        if key in lists:
            made[key] = merge_list(values[key], item, values, (source, key))
        else:
            made[key] = merge_value(values[key], item, values, source, (key,))
    return made


def merge_list(below: Any, above: Any, values: dict[str, Any], where: tuple[str, str]) -> Any:
    """Rule 2."""
    source, key = where
    if not isinstance(above, dict):
        return above
    rows = {row: item for row, item in above.items() if row != EACH}
    kept = below if isinstance(above, More) or (EACH in above and not rows) else {}
    kept = {row: item for row, item in kept.items() if row != MERGED}
    if EACH in above:
        kept = {row: merge_value(item, above[EACH], values, source, (key, row)) for row, item in kept.items()}
        rows = {row: item if row in kept else overlay(above[EACH], item) for row, item in rows.items()}
    changed = {row: merge_value(kept[row], rows[row], values, source, (key, row)) for row in kept if row in rows}
    rows = kept | rows | changed
    follows = isinstance(below, dict) and MERGED in below and not isinstance(above, New)
    return {MERGED: below[MERGED]} | rows if follows else rows


def merge_value(below: Any, above: Any, values: dict[str, Any], source: str, place: tuple[str | int, ...]) -> Any:
    """Rules 1, 3 and 4."""
    if isinstance(above, New) or not isinstance(above, dict):
        return above
    known = resolve(below, values, place)
    if not isinstance(known, dict):
        return above
    links = isinstance(below, Same)
    made = {MERGED: below} if links else dict(below)
    for key, item in above.items():
        if key not in known:
            raise ValueError(unknown(source, (*place, key), known))
        if key in made:
            made[key] = merge_value(made[key], item, values, source, (*place, key))
        else:
            # Checked against what it will lie over, and kept as it is: what lies below may still change.
            merge_value(known[key], item, values, source, (*place, key))
            made[key] = item
    return New(made) if isinstance(below, New) else made


def unknown(source: str, place: tuple[str | int, ...], known: dict[str, Any]) -> str:
    names = ", ".join(sorted(str(key) for key in known if key != MERGED))
    free = "" if len(place) == 1 else f"; where names are free, put !new before the whole of {name(place[:-1])}"
    return f"{source}: {name(place)} is not a known key; known here: {names or 'none'}{free}"
