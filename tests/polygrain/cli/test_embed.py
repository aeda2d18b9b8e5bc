import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from polygrain.cli.main import main
from polygrain.encoder.kept import digest


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> str | int | None:
    """What the command line ends with: 0, or the line that says what is wrong."""
    monkeypatch.setattr(sys, "argv", ["polygrain", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_embed__writes_the_file_and_says_so(
    fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "e.parquet"
    (photos / "a.png").write_bytes(b"no image")
    assert run(monkeypatch, "embed", photos, "-o", output, "--model", fused) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{output}: 24 rows of 24 numbers, by model {digest(fused)}",
        f"{tmp_path / 'e.rejected.csv'}: 1 entry left out, with the reasons",
    ]
    assert len(pq.read_table(output)) == 24


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("photos", "-o", "e.parquet", "--model", "none"), "none/config.json is missing"),
        (("photos", "-o", "e.npy"), "e.npy does not end in .parquet"),
        (("photos", "-o", "photos/a.parquet"), "photos/a.parquet is a folder"),
    ],
)
def test_embed__says_what_is_wrong_and_leaves_nothing(
    fused: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, words: tuple, message: str
) -> None:
    monkeypatch.chdir(photos.parent)
    (photos / "a.parquet").mkdir()
    model = () if "--model" in words else ("--model", fused)
    ended = run(monkeypatch, "embed", *words, *model)
    assert str(ended).startswith(f"error: {message}") and "\n" not in ended
    assert [path.name for path in photos.parent.iterdir()] == ["photos"]
