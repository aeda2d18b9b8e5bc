"""profiles/NAME/params.yaml from what differs there: `python -m polygrain.config.compose profiles/NAME [...]`.

A profile's values.yaml lies over the root's params.yaml, or with `from: OTHER` as its first key over that profile, by
the rules at the head of `merging`. Two values are set here:

- `root` leads from the profile to the project.
- A relative `path` is seen from the file it is written in, and rewritten to be seen from the profile. What stages make
  (below data/, but not data/raw) is each graph's own, so such a path stays as it is.

DVC cannot lay one file over another (its `vars` refuse a key that is set twice), so this happens before it.
"""

import os
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from polygrain.config import document, merging
from polygrain.config.lists import Lists

FROM = "from"
LISTS = set(Lists.model_fields) - {"root", "seed"}
MARK = "# Composed from "
LINE = 120


def layers(profile: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The values.yaml files that make the profile, the farthest first, each with its values."""
    found: list[tuple[Path, dict[str, Any]]] = []
    folder = profile
    while True:
        file = folder / "values.yaml"
        if file in [met for met, _ in found]:
            circle = " from ".join([*(met.parent.name for met, _ in found), folder.name])
            raise ValueError(f"profiles go round in a circle: {circle}; take out one `from:`")
        values = merging.parse(document.text(file, seen(file)), seen(file))
        other = values.pop(FROM, None)
        found.append((file, values))
        if other is None:
            return found[::-1]
        known = sorted(path.parent.name for path in profile.parent.glob("*/values.yaml"))
        if other not in known:
            raise ValueError(f"{seen(file)}: from is {other!r}; known here: {', '.join(known)}")
        folder = profile.parent / other


def seen(file: Path) -> str:
    """The file as one types it in the project's folder."""
    return "/".join(file.parts[-3:]) if file.name == "values.yaml" else file.name


def named(params: Path) -> str:
    """The file as an error names it: nobody should mend what is composed."""
    return f"{params} (composed: mend values.yaml beside it)" if sources(params) else str(params)


def root_of(profile: Path) -> Path:
    return profile.parent.parent


def sources(params: Path) -> list[Path]:
    """The files that a profile's params.yaml is composed from; none for one that is written by hand, as the root's."""
    profile = params.parent.resolve()
    if not os.path.lexists(profile / "values.yaml"):
        return []
    return [root_of(profile) / "params.yaml", *(file for file, _ in layers(profile))]


def rebased(value: Any, origin: Path, profile: Path, is_study: bool = False) -> Any:
    """The value with each relative path in it, written in the folder `origin`, as it is seen from the profile."""
    if isinstance(value, list):
        return [rebased(item, origin, profile, is_study) for item in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, item in value.items():
        is_path = key == "path" or (is_study and key == "weights")
        made[key] = moved(item, origin, profile) if is_path else rebased(item, origin, profile, is_study)
    return type(value)(made)


def moved(path: Any, origin: Path, profile: Path) -> Any:
    is_made = isinstance(path, str) and path.startswith("data/") and not path.startswith("data/raw/")
    if not isinstance(path, str) or os.path.isabs(path) or is_made or origin == profile:
        return path
    return os.path.normpath(os.path.join(os.path.relpath(origin, profile), path))


def compose(profile: Path) -> str:
    """The text of the profile's params.yaml; ValueError says what is wrong with a values.yaml."""
    profile = profile.resolve()
    root, laid = root_of(profile), layers(profile)
    values = merging.tree(document.text(root / "params.yaml", "params.yaml"))
    values = {key: rebased(item, root, profile, key == "tll") for key, item in values.items()}
    for file, over in laid:
        if "root" in over:
            raise ValueError(f"{seen(file)}: root is set by composing; leave it out")
        over = {key: rebased(item, file.parent, profile, key == "tll") for key, item in over.items()}
        values = merging.merge(values, over, LISTS, seen(file))
    values["root"] = os.path.relpath(root, profile)
    return header(profile, [file for file, _ in laid]) + dump(merging.resolve(values, values))


def header(profile: Path, files: list[Path]) -> str:
    names = ["params.yaml", *map(seen, files)]
    lines = [f"{MARK}{names[0]} and", *(f"#   {name}" for name in names[1:])]
    return (
        "\n".join([*lines, f"# Change those, not this file, and renew it: make compose PROFILE={profile.name}"]) + "\n"
    )


def dump(values: Any) -> str:
    yaml, stream = YAML(), StringIO()
    yaml.width = LINE
    yaml.dump(untyped(values), stream)
    return stream.getvalue()


def untyped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: untyped(item) for key, item in value.items()}
    return [untyped(item) for item in value] if isinstance(value, list) else value


def renew(profile: Path) -> bool:
    """Writes the profile's params.yaml if it is not what its values compose to; whether it did.

    A folder without values.yaml keeps the params.yaml that someone wrote there.
    """
    file = profile / "params.yaml"
    if not os.path.lexists(profile / "values.yaml"):
        require(file)
        return False
    text = compose(profile)
    met = document.text(file) if file.exists() else None
    if met == text:
        return False
    if met is not None and not met.startswith(MARK):
        raise ValueError(
            f"{file} was written by hand, and {profile.name}/values.yaml stands beside it: keep in values.yaml what "
            "differs from the root's params.yaml, and remove params.yaml, which is then composed"
        )
    descriptor, partial = tempfile.mkstemp(prefix=".params.", suffix=".partial", dir=profile)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(partial, 0o644)
        os.replace(partial, file)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return True


def renew_missing(root: Path) -> None:
    """Composes each profile that has its link to the graph and no params.yaml: DVC reads every graph below the root,
    and one without values stops all of them."""
    for graph in sorted(root.glob("profiles/*/dvc.yaml")):
        if not (graph.parent / "params.yaml").exists():
            renew(graph.parent)


def require(params: Path) -> None:
    """ValueError for a params.yaml that is not, or no longer, what the values.yaml beside it composes to."""
    profile = params.parent.resolve()
    met = document.text(params) if params.exists() else ""
    if os.path.lexists(profile / "values.yaml"):
        if met != compose(profile):
            state = "is not what values.yaml beside it composes to" if met else "has not been composed yet"
            raise ValueError(f"{params} {state}: renew it with `make compose PROFILE={profile.name}`")
        return
    if met:
        document.values(met, str(params))
    if met.startswith(MARK):
        raise ValueError(
            f"{params} was composed, and the values.yaml beside it is gone: bring that back, or take out the first "
            "lines to keep this file as one that is written by hand"
        )


def main() -> None:
    folders = list(map(Path, sys.argv[1:])) or sorted(file.parent for file in Path("profiles").glob("*/values.yaml"))
    try:
        for folder in folders:
            if not os.path.lexists(folder / "values.yaml") and not (folder / "params.yaml").exists():
                known = sorted({file.parent.name for file in folder.resolve().parent.glob("*/*.yaml")})
                raise ValueError(f"there is no profile {folder.name}; known here: {', '.join(known) or 'none'}")
            if renew(folder):
                sys.stdout.write(f"composed {folder / 'params.yaml'}\n")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
