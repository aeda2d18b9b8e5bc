from polygrain.compute.counted import counted


def test_counted__one_has_no_plural():
    assert [counted(n, "image") for n in (0, 1, 1200)] == ["0 images", "1 image", "1,200 images"]
    assert [counted(n, "class", "classes") for n in (1, 2)] == ["1 class", "2 classes"]
