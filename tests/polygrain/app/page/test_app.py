import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from polygrain.app.embedding import embed
from polygrain.app.gallery import Gallery, Setting, read
from polygrain.app.knob import Knob
from polygrain.app.page import app
from polygrain.app.page.app import Page, build
from polygrain.app.page.sides import Side
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.smoothing import Smoothing, smooth_as


@pytest.fixture
def client(shared_sides: list[Side]) -> TestClient:
    return TestClient(build(shared_sides, 0.95))


def row_of(sides: list[Side], path: str) -> int:
    return sides[1].gallery.paths.index(path)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def expected(side: Side, image: Image.Image, without: int | None = None, k: int = 5) -> list[int]:
    """The nearest, by the model called on its own and a sort."""
    scores = side.gallery.vectors([*range(len(side.gallery))]) @ embed(side.model, [image])[0]
    return [row for row in np.argsort(-scores, kind="stable").tolist() if row != without][:k]


def rows_of(hits: list[dict]) -> list[int]:
    return [hit["row"] for hit in hits]


def test_files__nothing_comes_from_elsewhere(client: TestClient) -> None:
    pages = [client.get(path) for path in ("/", "/page.js", "/page.css")]
    kinds = [page.headers["content-type"].split(";")[0] for page in pages]
    assert kinds == ["text/html", "text/javascript", "text/css"]
    for page in pages:
        assert "http://" not in page.text and "https://" not in page.text
    # What would read a name as HTML, or run it.
    assert not any(word in pages[1].text for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval("))


def test_about__folder_tasks_and_sides(client: TestClient, shared_photos: Path) -> None:
    reply = client.get("/about").json()
    assert (reply["folder"], reply["count"], reply["folders"]) == (str(shared_photos), 24, 6)
    assert reply["tasks"] == [{"name": "bars", "count": 12}, {"name": "dots", "count": 12}]
    assert [side["name"] for side in reply["sides"]] == ["encoder", "model"] and reply["granularities"] == ["k4", "k8"]


def test_search__a_row_by_both_models(client: TestClient, shared_sides: list[Side], shared_photos: Path) -> None:
    row = row_of(shared_sides, "dots/class1/2.png")
    reply = client.post(f"/search?row={row}&k=5").json()
    with Image.open(shared_photos / "dots/class1/2.png") as image:
        for side, hits in zip(shared_sides, reply["sides"], strict=True):
            assert rows_of(hits) == expected(side, image, without=row)
    assert reply["of"] == 23 and reply["asked"]["path"] == "dots/class1/2.png"


def test_search__an_upload_and_a_box_of_it(client: TestClient, shared_sides: list[Side], shared_photos: Path) -> None:
    image = Image.open(shared_photos / "bars/class2/0.png").convert("RGB")
    whole = client.post("/search?k=5", content=png(image)).json()
    part = client.post("/search?k=5&box=0.25,0,0.75,0.5", content=png(image)).json()
    of_row = client.post(f"/search?k=5&box=0.25,0,0.75,0.5&row={row_of(shared_sides, 'bars/class2/0.png')}").json()
    for i, side in enumerate(shared_sides):
        assert rows_of(whole["sides"][i]) == expected(side, image)
        assert rows_of(part["sides"][i]) == expected(side, image.crop((16, 0, 48, 24)))
        assert of_row["sides"][i] == part["sides"][i]


def test_alike__all_pairs_of_the_model(shared_sides: list[Side]) -> None:
    vectors = shared_sides[1].gallery.vectors([*range(24)])
    cosines = vectors @ vectors.T
    expected = [(i, j) for i in range(24) for j in range(i + 1, 24) if cosines[i, j] >= 0.99]
    reply = TestClient(build(shared_sides, 0.99)).get("/alike").json()
    pairs = [(pair["image"]["row"], pair["other"]["row"]) for pair in reply["duplicate"]["rows"]]
    assert expected and set(pairs) == set(expected) and reply["duplicate"]["of"] == len(expected)
    # Of none there is still said how alike the closest two are.
    none = TestClient(build(shared_sides, 0.99)).get("/alike?above=1").json()
    assert none["duplicate"] == {"rows": [], "of": 0}
    assert none["closest"] == pytest.approx((cosines - 2 * np.eye(24)).max(), abs=1e-6) and none["least"] <= 0.99


def by_hand(plain: np.ndarray, rows: np.ndarray, row: int, mixed: int = 0) -> list[int]:
    """The nearest others of a plain row among rows, which it is mixed with first, as far as these are others."""
    query = plain[row, : rows.shape[1]] / np.linalg.norm(plain[row, : rows.shape[1]])
    others = [other for other in np.argsort(-(rows @ query)).tolist() if other != row]
    query = query + sum(max(0, rows[other] @ query) ** 3 * rows[other] for other in others[:mixed])
    return [other for other in np.argsort(-(rows @ query)).tolist() if other != row]


def test_search__at_a_place_of_the_knob(sides: list[Side], photos: Path) -> None:
    """A row asks with its plain embedding as an upload does, without itself, and with as many axes as are compared."""
    model, plain = sides[1], sides[1].gallery
    vectors = plain.vectors([*range(24)])
    turned = vectors[::-1].copy()
    smoothed = Gallery(plain.root, plain.paths, turned, "abc", smoothing=Smoothing(0.9, 5, 2))
    model.knob = Knob(plain, smoothed, [Setting(24), Setting(24, 1.0), Setting(9, 1.0)], Setting(24, 1.0))
    client = TestClient(build(sides, 0.95))
    of_row = [client.post(f"/search?row=3&k=5&place={place}").json()["sides"] for place in range(3)]
    assert (
        client.post("/search?row=3&k=5").json()["sides"] == of_row[1] and of_row[0][0] == of_row[1][0] == of_row[2][0]
    )
    few = turned[:, :9] / np.linalg.norm(turned[:, :9], axis=1, keepdims=True)
    for rows, hits in zip((turned, few), of_row[1:], strict=True):
        assert rows_of(hits[1]) == by_hand(vectors, rows, 3, 2)[:5]
    with Image.open(photos / "bars/class2/0.png") as image:
        query = smoothed.asked(embed(model.model, [image.convert("RGB")]))[0]
        reply = client.post("/search?k=5", content=png(image.convert("RGB"))).json()
    assert rows_of(reply["sides"][1]) == np.argsort(-(turned @ query)).tolist()[:5]
    about = client.get("/about").json()["sides"]
    assert (about[0]["settings"], about[0]["start"]) == (["24 axes, plain"], 0)
    assert about[1]["smoothing"].startswith("smoothed by 5") and (len(about[1]["settings"]), about[1]["start"]) == (
        3,
        1,
    )


def test_search__counts_the_others_of_the_folder(client: TestClient, shared_sides: list[Side]) -> None:
    row = row_of(shared_sides, "dots/class1/2.png")
    assert client.post(f"/search?row={row}").json()["mates"] == 3
    assert client.post(f"/search?row={row}&text=3.png").json()["mates"] == 1
    assert "mates" not in client.post("/search", content=png(Image.new("RGB", (40, 40)))).json()


def test_keep__into_the_file(sides: list[Side]) -> None:
    client, knob = TestClient(build(sides, 0.95)), sides[1].knob
    knob.settings = [Setting(24), Setting(12)]
    assert client.post("/keep?place=1").json() == {"start": 1}
    assert client.get("/about").json()["sides"][1]["start"] == 1
    assert read(knob.file).vectors([3]).shape == (1, 12)
    knob.file.unlink()
    reply = client.post("/keep?place=0")
    assert reply.status_code == 409 and str(knob.file) in reply.json()["error"]


def test_right__the_share_of_nearest_from_the_own_folder(client: TestClient, shared_sides: list[Side]) -> None:
    reply = client.get("/right").json()
    folders = [path.rpartition("/")[0] for path in shared_sides[0].gallery.paths]
    for side, share in zip(shared_sides, reply["shares"], strict=True):
        vectors, hits = side.gallery.vectors([*range(24)]), []
        for row in range(24):
            nearest = [other for other in np.argsort(-(vectors @ vectors[row])).tolist() if other != row][:10]
            hits += [folders[other] == folders[row] for other in nearest]
        assert share == pytest.approx(np.mean(hits), abs=0.01)
    assert (reply["asked"], reply["nearest"]) == (24, 10)


def test_right__a_place_that_new_images_like_better_is_said_to_be_better(sides: list[Side]) -> None:
    """Of groups of four within kinds: smoothed rows that ask each other find fewer of their own than plain ones do."""
    rng, groups, axes = np.random.default_rng(1), np.arange(1200) // 4, np.arange(1, 65) ** -0.35
    kinds, products = rng.normal(size=(30, 64)), rng.normal(size=(300, 64))
    rows = (1.2 * kinds[rng.integers(30, size=300)] + 0.35 * products)[groups] + 0.5 * rng.normal(size=(1200, 64))
    rows = unit_rows((rows * axes).astype(np.float32))
    by, paths = Smoothing(0.95, 20, whitened=True), [f"{group}/{row}.png" for row, group in enumerate(groups)]
    plain = Gallery(Path(), paths, rows, "abc")
    knob = Knob(plain, Gallery(Path(), paths, smooth_as(rows, by), "abc", smoothing=by))
    page = Page([Side("model", "drawn", sides[1].model, knob)], 0.95)
    said = [page.judge(place)["shares"][0] for place in (0, 1)]
    asked, others = np.arange(0, 1200, 4), np.flatnonzero(np.arange(1200) % 4)
    true = []
    for searched in (rows[others], smooth_as(rows[others], by)):
        found = np.argsort(-(rows[asked] @ searched.T), axis=1)[:, :10]
        true.append((groups[others][found] == groups[asked][:, None]).mean())
    assert true[1] > true[0] + 0.01 and said[1] > said[0] + 0.01
    np.testing.assert_allclose(said, true, atol=0.02)


def test_search__filters_by_task_and_name(client: TestClient) -> None:
    reply = client.post("/search?row=0&k=60&task=dots&text=CLASS1").json()
    assert reply["of"] == 4
    for hits in reply["sides"]:
        assert sorted(hit["path"] for hit in hits) == [f"dots/class1/{number}.png" for number in range(4)]
    assert client.post("/search?row=0&text=nothing").json()["sides"] == [[], []]


def test_search__a_folder_without_tasks(sides: list[Side]) -> None:
    for side in sides:
        side.gallery.paths = [path.replace("/", "-") for path in side.gallery.paths]
    client = TestClient(build(sides, 0.95))
    assert client.get("/sample?count=5").json()["of"] == 24


def test_sample__spread_and_other_ones(client: TestClient) -> None:
    first, other = [{hit["row"] for hit in client.get(f"/sample?count=8&start={i}").json()["rows"]} for i in (0, 1)]
    assert len(first) == len(other) == 8 and not first & other
    assert len(client.get("/sample?task=dots").json()["rows"]) == 12


def test_question__the_clicks_decide_for_a_place(sides: list[Side]) -> None:
    """Half of the axes find the query's folder, the other half do not; who wants the folder gets the first."""
    plain = sides[1].gallery
    folders = np.unique([path.rpartition("/")[0] for path in plain.paths], return_inverse=True)[1]
    rows = np.random.default_rng(0).normal(size=(24, 200)).astype(np.float32)
    rows[:, :48] += 6 * np.random.default_rng(1).normal(size=(6, 48))[folders]
    rows[:, 48:] *= 8
    gallery = Gallery(plain.root, plain.paths, rows / np.linalg.norm(rows, axis=1, keepdims=True), "abc")
    sides[1].knob = Knob(gallery, None, [Setting(200), Setting(100), Setting(48)], Setting(200))
    client, votes = TestClient(build(sides, 0.95)), ""
    assert client.get("/about").json()["clicks"] == 30
    while "place" not in (reply := client.get(f"/question?votes={votes}").json()):
        own = reply["query"]["path"].rpartition("/")[0]
        first, second = (sum(hit["path"].startswith(own) for hit in hits) for hits in reply["groups"])
        assert len(reply["groups"][0]) == len(reply["groups"][1]) > 0
        votes += "0" if first == second else "1" if first > second else "2"
    assert (reply["place"], reply["clicks"]) == (2, len(votes)) and len(votes) <= 30
    assert client.get(f"/question?votes={votes}1").status_code == 400 == client.get("/question?votes=x").status_code


def test_question__none_where_images_are_compared_in_one_way(client: TestClient) -> None:
    assert client.get("/about").json()["clicks"] == 0 and client.get("/question").status_code == 404


def test_listened__layers_of_the_model(client: TestClient) -> None:
    layers = client.post("/listened?row=3").json()["layers"]
    assert np.shape(layers) == (2, 2) and np.allclose(np.sum(layers, 1), 1)


def test_pictures__bounded_and_upright(client: TestClient) -> None:
    thumbnail = Image.open(io.BytesIO(client.get("/image/0").content))
    assert thumbnail.size == (224, 224) and thumbnail.format == "JPEG"
    large = png(Image.new("RGB", (3000, 1500)))
    assert Image.open(io.BytesIO(client.post("/preview", content=large).content)).size == (1024, 512)
    assert Image.open(io.BytesIO(client.post("/preview?row=0").content)).size == (64, 48)


@pytest.mark.parametrize(
    ("address", "status", "message"),
    [
        ("/search", 400, "row"),
        ("/search?row=24", 404, "row 24"),
        ("/search?row=../../etc/passwd", 400, "row"),
        ("/search?row=0&task=none", 400, "'none'"),
        ("/search?row=0&box=0,0,nan,1", 400, "box"),
        ("/search?row=0&place=coarse", 400, "place"),
        ("/search?row=0&box=0,0,0.01,0.01", 422, "1 x 0 pixels"),
    ],
)
def test_queries__refused_with_a_reason(client: TestClient, address: str, status: int, message: str) -> None:
    reply = client.post(address)
    assert reply.status_code == status and message in reply.json()["error"]


def test_queries__uploads_are_limited_and_may_be_anything(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = client.post("/search", content=b"no image")
    assert (reply.status_code, reply.json()["error"][:38]) == (422, "the image is left out: not readable as")
    assert client.post("/search?row=1", content=b"no image").status_code == 400
    monkeypatch.setattr(app, "MOST_PIXELS", 10_000)
    bomb = png(Image.new("1", (101, 100)))
    for path in ("/search", "/preview", "/search?box=0,0,1,1", "/listened"):
        reply = client.post(path, content=bomb)
        assert reply.status_code == 422 and "at most 10000 are decoded" in reply.json()["error"]
    monkeypatch.setattr(app, "MOST_BYTES", 1000)
    assert client.post("/search", content=bytes(1001)).status_code == 413


def test_pictures__nothing_outside_the_folder(sides: list[Side], photos: Path) -> None:
    """A file that became a link after it was embedded is not followed; nor is a path ever taken from a request."""
    client, secret = TestClient(build(sides, 0.95)), photos.parent / "secret.png"
    Image.new("RGB", (8, 8)).save(secret)
    file = photos / sides[1].gallery.paths[5]
    file.unlink()
    file.symlink_to(secret)
    for reply in (client.get("/image/5"), client.post("/preview?row=5"), client.post("/search?row=5")):
        assert reply.status_code == 404 and "leads outside the folder" in reply.json()["error"]
    for path in ("/image/../../secret.png", "/image/%2e%2e%2fsecret.png", "/image/-1", "/image/99", "/app.py"):
        assert client.get(path).status_code == 404
