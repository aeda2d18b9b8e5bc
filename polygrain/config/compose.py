"""A profile's params.yaml, which DVC reads, from its values.yaml.

The papers' profiles are listed by name in profiles/<paper>/<family>.yaml; profiles/NAME is made when one runs. Values
are what differs from the root's params.yaml, or with `from: OTHER` from another profile:

- Sections are merged key by key. The lists of items before them (`tasks`, `models`, ...) are replaced whole, and those
  of the papers' branches (`mpcl`, `tll`, `gsp_runs`, ...) are empty without.
- `replace: [gsp_folds.losses]` empties a section first. `extend: [gsp_runs]` merges a list instead of replacing it.
- `${fusion.augmentation}` stands for another value of the composed file; `vars` holds values for this use alone.
- A relative `path` is seen from the file it is written in. What stages make (data/, but not data/raw/) is each graph's
  own, so such a path stays as it is.
- Where DVC needs the folder of each item, a list of names will do: `granularities: [128, size4]`, `fusions: [average]`.
- The `path` of a task goes to `paths`, on which `images` alone depends.
- A profile with granularities of its own trains `adaptors` on all of them, unless it says on which.
"""

import os
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from polygrain.config import lists
from polygrain.config.graph import used
from polygrain.store.drafts import drafted

MADE = re.compile("data/(?!raw/)")
CONFLICT = re.compile("^(<{7} |>{7} )", re.MULTILINE)
NAME = re.compile(r"^([\w.-]+):", re.MULTILINE)
# Removed lists, each with the section of its stage.
GONE = {"distillations": "distillation", "teachers": "teacher"}
FROM_GONE = re.compile(f"'((?:{'|'.join(GONE.values())})(?:[.]\\w+)*)'")
HEADER = "# Composed from {} over params.yaml. Change those: `polygrain run --profile {}` writes this file anew.\n"
GRAPH_HEADER = "# What the values beside this file use of ../../dvc.yaml: change those. Commands write it anew.\n"


def read_params(file: Path) -> dict[str, Any]:
    """The sections of a file of values; ValueError where it cannot be read or holds none."""
    try:
        return parsed(file, file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def parsed(file: Path, text: str) -> dict[str, Any]:
    """`read_params`, of this text of the file."""
    if CONFLICT.search(text):
        raise ValueError(f"{file} has an unsolved merge conflict: keep one side of each <<<<<<< ======= >>>>>>>")
    try:
        values = YAML(typ="safe").load(text)
    except DuplicateKeyError as error:
        name, lines = next(twice(YAML(typ="safe").compose(text)))
        found = f"{name!r} is written twice, in lines {lines[0]} and {lines[1]}"
        raise ValueError(f"{file}: {found}: keep one of them") from error
    except YAMLError as error:
        raise ValueError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict | None):
        raise ValueError(f"{file} holds no sections, such as `adaptor: {{epochs: 3}}`")
    return values or {}


def twice(node: Node) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each key that a mapping below the node has twice, with the lines of both."""
    first: dict[str, int] = {}
    for key, value in node.value if isinstance(node, MappingNode) else []:
        name, line = str(key.value), key.start_mark.line + 1
        if name in first:
            yield name, (first[name], line)
        first[name] = line
        yield from twice(value)
    for child in node.value if isinstance(node, SequenceNode) else []:
        yield from twice(child)


def listed(profiles: Path) -> dict[str, Path]:
    """The profiles that a file of their family lists, by name, and that file; none outside a folder `profiles`."""
    if profiles.name != "profiles":
        return {}
    files = [file for file in sorted(profiles.glob("*/*.yaml")) if not is_profile(file.parent)]
    # To parse all of them takes half a second.
    return {name: file for file in files for name in NAME.findall(file.read_text(encoding="utf-8"))}


def is_profile(folder: Path) -> bool:
    """Whether it is one profile's folder, and no paper's."""
    return any((folder / name).exists() for name in ("values.yaml", "params.yaml", "dvc.yaml"))


def source(profile: Path) -> Path | None:
    """The file that holds the values of a profile: its own, else that of its family; None where there is none."""
    own = profile / "values.yaml"
    return own if own.exists() else listed(profile.parent).get(profile.name)


def values_in(file: Path, name: str) -> dict[str, Any]:
    """The changes of a profile, from its `source`."""
    values = read_params(file)
    return values if file.name == "values.yaml" else values[name] or {}


def layers(profile: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The files that make this profile, the farthest first, each with its values."""
    files = listed(profile.parent) | {file.parent.name: file for file in profile.parent.glob("*/values.yaml")}
    names, values = [profile.name], values_in(files[profile.name], profile.name)
    result = [(files[profile.name], values)]
    while other := values.pop("from", None):
        if other not in files or other in names:
            raise ValueError(f"{result[0][0]}: from is {other!r}; known here, each once: {', '.join(sorted(files))}")
        values = values_in(files[other], other)
        names.append(other)
        result.insert(0, (files[other], values))
    return result


def merge(below: Any, above: Any) -> Any:
    """Mappings key by key; any other value, and an empty mapping, takes the place of the one below."""
    if not (isinstance(below, dict) and isinstance(above, dict) and above):
        return above
    return below | {key: merge(below.get(key), value) for key, value in above.items()}


def without(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The values with an empty mapping in the place of this full name."""
    key, _, rest = name.partition(".")
    return values | {key: without(values.get(key) or {}, rest) if rest else {}}


def moved(values: Any, origin: Path, profile: Path, section: str = "") -> Any:
    """The values with each relative path, written in the folder `origin`, as it is seen from the profile."""
    if isinstance(values, list):
        return [moved(value, origin, profile, section) for value in values]
    if not isinstance(values, dict):
        return values
    result = {}
    for key, value in values.items():
        if isinstance(value, str) and lists.is_path(section, key):
            is_fixed = origin == profile or MADE.match(value) or os.path.isabs(value)
            value = value if is_fixed else os.path.normpath(os.path.relpath(origin / value, profile))
        result[key] = moved(value, origin, profile, section or key)
    return result


def compose(profile: Path) -> dict[str, Any]:
    """The values of a profile; ValueError says what is wrong with a values.yaml."""
    profile = profile.resolve()
    root = profile.parent.parent
    values = moved(read_params(root / "params.yaml"), root, profile)
    values |= {name: type(values[name])() for name in lists.BRANCHES if name in values}
    # `polygrain new` wrote the choice's reference as `${distillation.target}`, which the root had equal to its own.
    values["distillation"] = {"target": (values.get("choice") or {}).get("reference", {})}
    inherited = lists.names_in(values.get("models"))
    for file, above in layers(profile):
        for name in filter(above.get, GONE):
            raise ValueError(f"{file} has {name}, and their stage is gone: remove them, and their rows from models")
        replaced, extended = (above.pop(key, []) for key in ("replace", "extend"))
        above = lists.divided(above)
        extended = [*extended, *(["paths"] if "tasks" in extended else [])]
        for name in replaced:
            values = without(values, name)
        for name in (lists.Lists.model_fields.keys() & above.keys()) - {*extended}:
            values.pop(name, None)
        inherited = [] if "models" in above else inherited
        if "granularities" in above and "adaptors" not in above:
            values["adaptors"] = lists.ALL
        values |= {key: merge(values.get(key), value) for key, value in moved(above, file.parent, profile).items()}
    values["root"] = "../.."
    try:
        if "${" in str(values):  # OmegaConf takes a third of the time
            values = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(values), resolve=True))
    except OmegaConfBaseException as error:
        if gone := FROM_GONE.search(str(error)):
            raise ValueError(f"{source(profile)} takes ${{{gone[1]}}}, whose stage is gone: write the value") from error
        raise ValueError(f"{source(profile)}: {error}") from error
    for name in ("vars", *GONE, *GONE.values()):
        values.pop(name, None)
    return lists.with_folders(values, inherited)


def changes(profile: Path) -> dict[Path, str]:
    """The files of a profile that are to be written anew, with their texts.

    A profile without values has a params.yaml that is written by hand, as the root. Its dvc.yaml becomes what it
    uses of the root's, in a file of its own: DVC cannot read a link in a commit.
    """
    profile = profile.resolve()
    file, root = profile / "params.yaml", profile.parents[1] / "dvc.yaml"
    texts, values = {}, {}
    if source(profile):
        values = compose(profile)
        made_of = [made.relative_to(profile.parent) for made, _ in layers(profile)]
        names = [str(name) for name in dict.fromkeys(made_of)]
        yaml, stream = YAML(), StringIO()
        yaml.width = 120
        yaml.dump(values, stream)
        texts[file] = HEADER.format(", ".join(names), profile.name) + stream.getvalue()
    elif file.exists():
        values = read_params(file)
    if root.exists() and profile.parent.name == "profiles":
        safe, stream = cast(Any, YAML(typ="safe")), StringIO()
        safe.width, safe.default_flow_style, safe.sort_base_mapping_type_on_output = 120, False, False
        safe.dump(used(read_params(root), values), stream)
        texts[profile / "dvc.yaml"] = GRAPH_HEADER + stream.getvalue()
    written = {file: file.read_bytes() for file in texts if file.is_file() and not file.is_symlink()}
    return {file: text for file, text in texts.items() if written.get(file) != text.encode()}


def renew(profile: Path) -> bool:
    """Writes what `changes` of a profile; whether anything does."""
    texts = changes(profile)
    write(texts)
    return bool(texts)


def write(texts: dict[Path, str]) -> None:
    """Writes files of profiles whole."""
    for file, text in texts.items():
        file.parent.mkdir(exist_ok=True)  # of a listed one
        if file.is_symlink():
            file.unlink()  # what it leads to is not the profile's
        with drafted(file) as draft:
            draft.write_text(text, encoding="utf-8")


def missing(root: Path) -> dict[Path, str]:
    """`changes` of each profile in use that has no params.yaml: DVC reads all graphs below the root, and fails for one
    without values."""
    graphs = [file.parent for file in root.glob("profiles/*/dvc.yaml")]
    texts = [changes(profile) for profile in graphs if not (profile / "params.yaml").exists()]
    return {file: text for one in texts for file, text in one.items()}
