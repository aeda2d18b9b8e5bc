"""`polygrain papers`: one printed result, from its data to the number beside the print."""

from typing import Annotated

import typer


def papers(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="without it: those known")] = None,
    dry: Annotated[bool, typer.Option("--dry", help="say what it is and how long it takes, and stop")] = False,
) -> None:
    """Repeat a printed result of a paper.

    It says how long that takes, fetches the data, runs it, and shows our numbers beside the print.

    Example: polygrain papers gsp-fig3b
    """
    from pipeline import graph
    from pipeline import run as pipeline
    from polygrain.app import papers
    from polygrain.config import compose

    for name in [study] if study else papers.STUDIES:
        chosen = papers.find(name)
        profiles = [graph.folder_of(profile) for profile in chosen.profiles]
        values = [compose.compose(profile) for profile in profiles]
        typer.echo(f"{name}: {chosen.what}\n  {papers.time(chosen, values)}")
    if dry or not study:
        return
    for profile, made in zip(profiles, values, strict=True):
        papers.fetch(profile, made)
        if code := pipeline.main(profile.name, [chosen.stage]):
            raise typer.Exit(code)
        typer.echo(papers.beside(chosen, profile, made))
