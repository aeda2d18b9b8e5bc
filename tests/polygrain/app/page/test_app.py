from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from polygrain.app.page import app
from polygrain.app.page.app import Page, build
from polygrain.app.page.sides import Side
from polygrain.collection.embedding import embed
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.compute.vectors import unit_rows
from tests.helpers import drawn
from tests.polygrain.app.page.test_pictures import png


def row_of(sides: list[Side], path: str) -> int:
    return sides[1].collection.paths.index(path)


def expected(side: Side, image: Image.Image, without: int | None = None, k: int = 5) -> list[int]:
    """The nearest, by the model called on its own and a sort."""
    scores = side.collection.plain @ side.collection.comparison.query(embed(side.network, [image]))[0]
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


def test_page__one_spelling_and_no_splits(shared_sides: list[Side], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"{'train' if i % 2 else 'val'}/Mo\u0308bel/{i}.png" for i in range(24)]
    shoes = shared_sides[-1].collection
    monkeypatch.setattr(shoes, "paths", paths), monkeypatch.setattr(shoes, "images", shoes.images._replace(paths=paths))
    page = Page(shared_sides, 0.95)
    assert page.sample(None, "m\xf6bel", 0, 5)["of"] == 24 and page.about()["folders"] == 1


def test_about__folder_tasks_and_sides(client: TestClient, shared_photos: Path) -> None:
    reply = client.get("/about").json()
    assert (reply["folder"], reply["count"], reply["folders"]) == (str(shared_photos), 24, 2)
    assert reply["tasks"] == [{"name": "bars", "count": 12}, {"name": "dots", "count": 12}]
    assert [side["name"] for side in reply["sides"]] == ["encoder", "model"]


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
    vectors = shared_sides[1].collection.plain
    cosines = vectors @ vectors.T
    expected = [(i, j) for i in range(24) for j in range(i + 1, 24) if cosines[i, j] >= 0.8]
    reply = TestClient(build(shared_sides, 0.8)).get("/alike").json()
    pairs = [(pair["image"]["row"], pair["other"]["row"]) for pair in reply["duplicate"]["rows"]]
    assert expected and set(pairs) == set(expected) and reply["duplicate"]["of"] == len(expected)
    # Of none there is still said how alike the closest two are.
    none = TestClient(build(shared_sides, 0.8)).get("/alike?above=1").json()
    assert none["duplicate"] == {"rows": [], "of": 0}
    assert none["closest"] == pytest.approx((cosines - 2 * np.eye(24)).max(), abs=1e-6) and none["least"] <= 0.8


def test_search__at_a_place_of_the_slider(sides: list[Side], photos: Path) -> None:
    """A row asks with its plain row, an upload less the mean; neither finds itself smoothed along."""
    mean = tuple(np.full(24, 0.05, np.float32).tolist())
    vectors = sides[1].collection.plain
    smoothed = np.roll(vectors, 5, 0)
    how = Comparison(mean, Smoothing(0.9, 5))
    sides[1] = Side("model", "", drawn.smoothed(sides[1].collection, how, smoothed))
    client = TestClient(build(sides, 0.95))
    of_row = [client.post(f"/search?row=3&k=5&place={place}").json()["sides"] for place in range(2)]
    assert client.post("/search?row=3&k=5").json()["sides"] == of_row[1]
    assert of_row[0][0] == of_row[1][0]
    with Image.open(photos / "bars/class2/0.png") as image:
        less = embed(sides[1].network, [image.convert("RGB")])[0] - np.array(mean)
        content = png(image.convert("RGB"))
    for place, rows in enumerate((vectors, smoothed)):
        others = [row for row in np.argsort(-(rows @ vectors[3]), kind="stable").tolist() if row != 3]
        assert rows_of(of_row[place][1]) == others[:5]
        reply = client.post(f"/search?k=5&place={place}", content=content).json()
        assert rows_of(reply["sides"][1]) == np.argsort(-(rows @ less), kind="stable").tolist()[:5]
    about = client.get("/about").json()["sides"]
    assert (len(about[0]["settings"]), about[0]["start"]) == (1, 0)
    assert (len({*about[1]["settings"]}), about[1]["start"]) == (2, 1)


def test_search__counts_the_others_of_the_folder(client: TestClient, shared_sides: list[Side]) -> None:
    row = row_of(shared_sides, "dots/class1/2.png")
    dots = {path for path in shared_sides[1].collection.paths if path.startswith("dots/")}
    reply = client.post(f"/search?row={row}&k=60").json()
    hits = [[hit["path"] for hit in side if hit["folder"] == reply["asked"]["folder"]] for side in reply["sides"]]
    assert reply["mates"] == 11 and all(len(own) == 11 and {*own} <= dots for own in hits)
    assert client.post(f"/search?row={row}&text=3.png").json()["mates"] == 3
    assert "mates" not in client.post("/search", content=png(Image.linear_gradient("L"))).json()


def test_right__the_share_of_nearest_from_the_own_folder(client: TestClient, shared_sides: list[Side]) -> None:
    reply = client.get("/right").json()
    folders = [path.partition("/")[0] for path in shared_sides[0].collection.paths]
    for side, share in zip(shared_sides, reply["shares"], strict=True):
        vectors, hits = side.collection.plain, []
        for row in range(24):
            nearest = [other for other in np.argsort(-(vectors @ vectors[row])).tolist() if other != row][:10]
            hits += [folders[other] == folders[row] for other in nearest]
        assert share == pytest.approx(np.mean(hits), abs=0.01)
    assert (reply["asked"], reply["nearest"]) == (24, 10)


def test_right__a_place_that_new_images_like_better_is_said_to_be_better(sides: list[Side], tmp_path: Path) -> None:
    """Of groups of four within kinds: smoothed rows that ask each other find fewer of their own than plain ones do."""
    rng, groups = np.random.default_rng(1), np.arange(1200) // 4
    kinds, products = rng.normal(size=(30, 64)), rng.normal(size=(300, 64))
    rows = (1.2 * kinds[rng.integers(30, size=300)] + 0.35 * products)[groups] + 0.5 * rng.normal(size=(1200, 64))
    rows = unit_rows(rows.astype(np.float32))
    by, names = Comparison(smoothing=Smoothing(0.95, 20)), [f"{group}/{row}.png" for row, group in enumerate(groups)]
    shoes = drawn.collection(tmp_path / "e.parquet", names, rows, by, by.rows(rows), sides[1].network)
    page = Page([Side("model", "drawn", shoes)], 0.95)
    said = [page.judge(place)["shares"][0] for place in (0, 1)]
    asked, others = np.arange(0, 1200, 4), np.flatnonzero(np.arange(1200) % 4)
    true = []
    for searched in (rows[others], by.rows(rows[others])):
        found = np.argsort(-(rows[asked] @ searched.T), axis=1)[:, :10]
        true.append((groups[others][found] == groups[asked][:, None]).mean())
    assert true[1] > true[0] + 0.005 and said[1] > said[0] + 0.005
    np.testing.assert_allclose(said, true, atol=0.02)


def test_search__filters_by_task_and_name(client: TestClient) -> None:
    reply = client.post("/search?row=0&k=60&task=dots&text=CLASS1").json()
    assert reply["of"] == 4
    for hits in reply["sides"]:
        assert sorted(hit["path"] for hit in hits) == [f"dots/class1/{number}.png" for number in range(4)]
    assert client.post("/search?row=0&text=nothing").json()["sides"] == [[], []]


def test_sample__spread_and_other_ones(client: TestClient) -> None:
    first, other = [{hit["row"] for hit in client.get(f"/sample?count=8&start={i}").json()["rows"]} for i in (0, 1)]
    assert len(first) == len(other) == 8 and not first & other
    assert len(client.get("/sample?task=dots").json()["rows"]) == 12


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
    monkeypatch.setattr("polygrain.sources.decode.MOST_PIXELS", 10_000)
    bomb = png(Image.new("1", (101, 100)))
    for path in ("/search", "/preview", "/search?box=0,0,1,1"):
        reply = client.post(path, content=bomb)
        assert reply.status_code == 422 and "at most 10000 are decoded" in reply.json()["error"]
    monkeypatch.setattr(app, "MOST_BYTES", 1000)
    assert client.post("/search", content=bytes(1001)).status_code == 413
