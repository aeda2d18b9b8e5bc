"""`polygrain init`: the pipeline in a folder of one's own, from an installed package."""

from pathlib import Path
from typing import Annotated

import typer

# Beside the library; the wheel carries them in polygrain/project (pyproject.toml).
PROJECT = (
    *("dvc.yaml", "params.yaml", "versions.yaml", "stages", "pipeline", "encoders/vit48", "profiles/README.md"),
    *(".dvc/config", ".dvcignore", ".gitignore"),
)


def init(folder: Annotated[Path, typer.Argument(metavar="DIR", help="a new or empty folder")]) -> None:
    """Lay out a project: graph, values, stages and the library, of this version.

    Example: polygrain init search
    """
    import shutil

    import polygrain
    from polygrain.config.site import keep_site

    library = Path(polygrain.__file__).parent
    source = library / "project" if (library / "project").is_dir() else library.parent
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not an empty folder: give another name")
    unneeded = shutil.ignore_patterns("__pycache__", "project")
    try:
        for name in PROJECT:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (source / name).is_dir():
                shutil.copytree(source / name, target, ignore=unneeded)
            else:
                shutil.copyfile(source / name, target)
        shutil.copytree(library, folder / "polygrain", ignore=unneeded)
        marker = "# `polygrain` runs the copy of the library in this folder.\n[tool.polygrain]\n"
        (folder / "pyproject.toml").write_text(marker, encoding="utf-8")
        (folder / "stages/run").chmod(0o755)
        (folder / "data/teacher").mkdir(parents=True)  # DVC wants it to be there, though no teacher is there yet
        (folder / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/site\n/cache\n", encoding="utf-8")
        keep_site(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    typer.echo(f"wrote {folder}; next: cd {folder}; git init; polygrain new NAME --images DIR")
