"""The list of a folder's files, as DVC keeps it (an object whose name ends in .dir): read, and refused where it lies.

DVC joins each relpath to the output's folder and cuts each hash into a path of the cache, whatever they say: `../`
in either leads anywhere. So a list that came from elsewhere passes here before DVC sees it.
"""

import json
import re

OBJECT = re.compile(r"[0-9a-f]{32}")
MOST_BYTES = 64 * 2**20
# A folder of git or DVC inside an output would be taken for a repository, with commands of its own.
RESERVED = {".git", ".dvc", "dvc.yaml", "dvc.lock", ".dvcignore", ".gitignore", ".gitattributes", ".gitmodules"}
UNSAFE = re.compile(r"[\\\x00-\x1f\x7f\ud800-\udfff]")


def read(data: bytes) -> dict[str, str]:
    """{relpath: md5} of a list that stays inside its output; ValueError says what does not."""
    try:
        entries = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no list of files: {error}") from error
    if not isinstance(entries, list):
        raise ValueError(f"is no list of files but {type(entries).__name__}")
    files: dict[str, str] = {}
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"relpath", "md5"}:
            raise ValueError(f"has an entry that is not a relpath and its md5: {entry!r:.200}")
        path, digest = entry["relpath"], entry["md5"]
        if reason := refusal(path):
            raise ValueError(f"names {path!r:.200}, which {reason}")
        if not isinstance(digest, str) or not OBJECT.fullmatch(digest):
            raise ValueError(f"gives {path!r} the md5 {digest!r:.200}, which is none")
        if path in files:
            raise ValueError(f"names {path!r} twice")
        files[path] = digest
    folders = {"/".join(parts[:end]) for parts in (path.split("/") for path in files) for end in range(1, len(parts))}
    if both := folders & set(files):
        raise ValueError(f"has {min(both)!r} as a file and as a folder")
    return files


def refusal(path: object) -> str:
    """Why this is no path below a folder; empty if it is one."""
    if not isinstance(path, str) or not path:
        return "is no path"
    if UNSAFE.search(path):
        return "has a backslash or control character"
    if path.startswith("/"):
        return "is absolute"
    parts = path.split("/")
    if {"", ".", ".."} & set(parts):
        return "does not stay in the output's folder"
    if RESERVED & {part.lower() for part in parts}:
        return "belongs to git or DVC"
    if max(len(part.encode()) for part in parts) > 255 or len(path.encode()) > 1000:
        return "is too long"
    return ""
