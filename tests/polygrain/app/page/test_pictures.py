import io
from pathlib import Path

import pytest
from PIL import ExifTags, Image
from starlette.testclient import TestClient

from polygrain.app.page.app import build
from polygrain.app.page.sides import Side


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_pictures__bounded_and_upright(client: TestClient) -> None:
    thumbnail = Image.open(io.BytesIO(client.get("/image/0").content))
    assert thumbnail.size == (224, 168) and thumbnail.format == "JPEG"
    large = png(Image.linear_gradient("L").resize((3000, 1500)))
    assert Image.open(io.BytesIO(client.post("/preview", content=large).content)).size == (1024, 512)
    assert Image.open(io.BytesIO(client.post("/preview?row=0").content)).size == (64, 48)


@pytest.mark.parametrize(
    ("size", "turned", "shown"),
    [((6000, 2000), 1, (224, 75)), ((6000, 2000), 6, (75, 224)), ((2000, 3), 1, (224, 1)), ((1, 9), 1, (25, 224))],
)
def test_pictures__thumbnails_have_the_proportions_of_their_file(
    sides: list[Side], photos: Path, size: tuple[int, int], turned: int, shown: tuple[int, int]
) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = turned
    path = sides[1].collection.paths[0]
    Image.linear_gradient("L").resize(size).convert("RGB").save(photos / path, "JPEG", exif=exif)
    thumbnail = Image.open(io.BytesIO(TestClient(build(sides, 0.95)).get("/image/0").content))
    assert thumbnail.size == shown


def test_pictures__nothing_outside_the_folder(sides: list[Side], photos: Path) -> None:
    """A file that became a link after it was embedded is not followed; nor is a path ever taken from a request."""
    client, secret = TestClient(build(sides, 0.95)), photos.parent / "secret.png"
    Image.new("RGB", (8, 8)).save(secret)
    file = photos / sides[1].collection.paths[5]
    file.unlink()
    file.symlink_to(secret)
    for reply in (client.get("/image/5"), client.post("/preview?row=5"), client.post("/search?row=5")):
        assert reply.status_code == 404 and "leads outside the folder" in reply.json()["error"]
    for path in ("/image/../../secret.png", "/image/%2e%2e%2fsecret.png", "/image/-1", "/image/99", "/app.py"):
        assert client.get(path).status_code == 404
