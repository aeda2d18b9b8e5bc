"""`polygrain new`: a profile for one's own images, and for any encoder."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

NUMBERS = "three numbers, or one for all channels"


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the profile: small letters, digits, - and _")],
    images: Annotated[
        list[str],
        typer.Option(
            metavar="DIR|FILE|s3://...",
            help="a task of its own: class folders, images without labels, a zip, or tars or Parquet files",
        ),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE|FOLDER", help="lite0 to lite2, a timm name, a checkpoint, or a model folder"),
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(metavar="NAME", help="of a checkpoint: a timm name, such as mobilenetv2_100.ra_in1k")
    ] = None,
    side: Annotated[int | None, typer.Option(min=8, metavar="PX", help="of the encoder's input")] = None,
    mean: Annotated[
        str | None, typer.Option(metavar="M,M,M", help=f"of the input's channels in 0..1: {NUMBERS}")
    ] = None,
    std: Annotated[str | None, typer.Option(metavar="S,S,S", help=f"the same, their deviation: {NUMBERS}")] = None,
    kwargs: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="of the network's constructor: pad_type=same")
    ] = None,
    alike: Annotated[
        list[int] | None,
        typer.Option(
            min=2,
            max=1_000_000,
            metavar="COUNT",
            help="about how many images show the same thing (images per instance): 6 of a product, 300 of a kind; "
            "once, or once for each folder",
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="train adaptors and fusions, too; it takes much longer")
    ] = False,
) -> None:
    """Write a profile for your own images.

    It says what was found, what a run leaves out, and what it costs, by the encoder of your choice.

    Example: polygrain new shoes --images data/raw/shoes --alike 6 --encoder vit_small_patch14_reg4_dinov2 --side 224
    """
    from pipeline import dvc_api, project
    from polygrain.config.site import keep_site
    from polygrain.new.profile import Suited, Work, create, free
    from polygrain.new.request import Request

    root = project()
    if root is None or not (root / "params.yaml").is_file():
        raise ValueError(f"{Path.cwd()} is in no clone of this project: go to the folder that holds its params.yaml")
    dvc_api.require_git(root)
    free(root, name)
    known = dict(word.partition("=")[::2] for word in kwargs or [])
    values = {key: value_of(text) for key, text in known.items()}
    request = Request(encoder, architecture, side, channels("--mean", mean), channels("--std", std), values)
    request.require_sense()

    again = [word for path in images for word in ("--images", typed(path, root))]
    again += [word for number in alike or [] for word in ("--alike", str(number))] + ["--train"] * train

    def suit(work: Work) -> Suited:
        from polygrain.new.estimate import suited  # loads torch and timm, which takes longer than all checks before it

        return suited(request, root, work, f"polygrain new {name}-better {shlex.join(again)}")

    lines = create(root, name, images, train, suit, alike or [])
    keep_site(root)
    typer.echo("\n".join(lines))


def typed(path: str | Path, root: Path) -> str:
    """A folder as it is typed in the project's folder, where it is a path."""
    if "://" in str(path):
        return str(path)
    full = os.path.abspath(path)
    return os.path.relpath(full, root) if Path(full).is_relative_to(root.resolve()) else full


def channels(option: str, text: str | None) -> list[float] | None:
    """Three numbers from `0.5` or `0.5,0.5,0.5`; ValueError for anything else."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3):
        raise ValueError(f"{option} is {text!r}: give {NUMBERS}, such as 0.485,0.456,0.406")
    return numbers * 3 if len(numbers) == 1 else numbers


def value_of(text: str) -> int | float | bool | str:
    """A value as YAML reads it; the text itself where it is none of YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe").load(text)
    except YAMLError:
        return text
    return value if isinstance(value, int | float | bool) else text
