import json

import numpy as np
import pytest
import pytrec_eval
from PIL import Image

from benchmarks import external
from benchmarks.external import NAMES, Setting, measures, read, score
from polygrain.compute.vectors import unit_rows
from tests.helpers.small import write_encoder


def draw(file, seed):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(file)


def gpr1200(folder):
    for i in range(12):
        draw(folder / f"images/{i // 3}_{i}.jpg", i)


def products(folder):
    lines = ["image_id class_id super_class_id path"]
    for i in range(12):
        draw(folder / f"chair_final/{i}.jpg", i)
        lines.append(f"{i} {i // 3} 1 chair_final/{i}.jpg")
    (folder / "Ebay_test.txt").write_text("\n".join(lines) + "\n")


def roxford(folder):
    names, asking = [f"all_souls_{i}" for i in range(12)], ["q_0", "q_1"]
    for i, name in enumerate([*names, *asking]):
        draw(folder / f"jpg/{name}.jpg", i)
    truth = [{"bbx": [2.5, 3, 30, 31], "easy": [0, 4], "hard": [7], "junk": [2, 9]}]
    truth += [{"bbx": [0, 0, 20, 20], "easy": [], "hard": [1, 5], "junk": []}]
    (folder / "gnd_roxford5k.json").write_text(json.dumps({"imlist": names, "qimlist": asking, "gnd": truth}))


def ilias(folder):
    for i, name in enumerate(("bold_bimp_000", "zippy_999")):
        for j in range(2 + i):
            draw(folder / f"{name}/query/Q{i:03}_{j:02}.jpg", 10 * i + j)
            draw(folder / f"{name}/pos/P{i:03}_{j:02}.jpg", 100 + 10 * i + j)


@pytest.mark.parametrize(
    ("write", "queries", "relevant", "ignored"),
    [
        (gpr1200, 12, {"all": {0, 1}}, {"all": {11}}),
        (products, 12, {"all": {9, 10}}, {"all": {11}}),
        (
            roxford,
            2,
            {"easy": set(), "medium": {1, 5}, "hard": {1, 5}},
            {"easy": {1, 5}, "medium": set(), "hard": set()},
        ),
        (ilias, 5, {"all": {2, 3, 4}}, {"all": set()}),
    ],
)
def test_read__each_layout_and_its_numbers_end_to_end(tmp_path, capsys, write, queries, relevant, ignored):
    write(tmp_path / "data")
    found = read(tmp_path / "data")
    last = {name: setting.relevant[-1] for name, setting in found.settings.items()}
    if write is gpr1200:  # sorted by name: 3_9 is the last, 3_10 and 3_11 stand before it
        last = {"all": {int(found.gallery[i].stem.split("_")[1]) - 10 for i in last["all"]}}
    assert len(found.queries) == queries and last == relevant
    assert {name: setting.ignored[-1] for name, setting in found.settings.items()} == ignored
    external.main(tmp_path / "data", [write_encoder(tmp_path / "encoder")])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].removeprefix("| ") for row in rows] == list(relevant)
    assert all(0 <= float(value) <= 100 for row in rows for value in row[2:6])


def test_read__another_layout_is_refused(tmp_path):
    with pytest.raises(ValueError, match="laid out as none of GPR1200"):
        read(tmp_path)


@pytest.mark.parametrize("size", [60, 1500])
def test_score__equals_trec_eval(size):
    """Where fewer than 1,000 are relevant: trec_eval divides by all of them, ILIAS by 1,000 at most."""
    rng = np.random.default_rng(size)
    gallery, queries = (unit_rows(rng.normal(size=(n, 8))) for n in (size, 20))
    relevant = [set(rng.permutation(size)[: rng.integers(0, 30)].tolist()) for _ in range(20)]
    ignored = [set(rng.permutation(size)[:10].tolist()) - own for own in relevant]
    qrels = {f"q{i}": {f"d{j}": 1 for j in own} for i, own in enumerate(relevant) if own}
    kept = {i: sorted(set(range(size)) - ignored[i]) for i in range(20)}
    run = {f"q{i}": {f"d{j}": float(queries[i] @ gallery[j]) for j in kept[i]} for i in range(20) if relevant[i]}
    names = ("map", "map_cut_1000", "success_1", "Rprec")
    scored = pytrec_eval.RelevanceEvaluator(qrels, {"map", "map_cut", "Rprec", "success"}).evaluate(run)
    expected = [[scored[name][measure] for measure in names] for name in qrels]
    np.testing.assert_allclose(score(gallery, queries, Setting(relevant, ignored)), expected, atol=1e-12)


def test_measures__of_many_relevant_images_and_by_trapezoids():
    hits = np.random.default_rng(0).random(3000) < 0.6
    numbers = dict(zip(NAMES, measures(hits, int(hits.sum()), True), strict=True))
    precisions = [hits[: i + 1].mean() for i in range(3000)]
    assert numbers["mAP@1000"] == pytest.approx(sum(precisions[i] for i in range(1000) if hits[i]) / 1000)
    steps = [(precisions[i] + (precisions[i - 1] if i else 1.0)) / 2 for i in range(3000) if hits[i]]
    assert numbers["mAP"] == pytest.approx(np.mean(steps))
