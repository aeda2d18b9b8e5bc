"""The folder of plain `dvc`'s own pickles: `python -m polygrain.config.site` sets it for the clone it stands in."""

import hashlib
import os
from pathlib import Path

from configobj import ConfigObj, ConfigObjError


def site_of(root: Path) -> Path:
    """The folder for DVC's site cache: in the clone; beside DVC's own where the clone's path is not ASCII.

    DVC writes its configuration as ASCII: what else stands there, `dvc remote add --local` would empty.
    """
    site = root.resolve() / ".dvc/site"
    if str(site).isascii():
        return site
    return Path(f"/var/tmp/polygrain-{os.getuid()}-{hashlib.md5(os.fsencode(site)).hexdigest()}")


def keep_site(root: Path) -> None:
    """Names a folder of this clone, which only its user may enter, as DVC's site cache; the clone may have moved.

    DVC's own place is one folder for all users of the machine, and it unpickles what it finds there. ValueError:
    the clone's configuration cannot be read, or the folder is another user's.
    """
    site, file = site_of(root), root / ".dvc/config.local"
    site.mkdir(exist_ok=True)
    is_outside = not site.is_relative_to(root.resolve())
    if is_outside and (site.is_symlink() or site.stat().st_uid != os.getuid()):
        raise ValueError(f"{site} is not yours, and DVC would unpickle its files: remove it")
    site.chmod(0o700)  # DVC would let everybody write there
    try:
        config = ConfigObj(str(file), encoding="utf-8")
    except (ConfigObjError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read ({error}): mend it, or delete it and name the remote anew") from error
    if config.setdefault("core", {}).get("site_cache_dir") != str(site):
        config["core"]["site_cache_dir"] = str(site)
        config.write()


if __name__ == "__main__":
    keep_site(Path())
