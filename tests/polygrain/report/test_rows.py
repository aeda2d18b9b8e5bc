from polygrain.report.rows import KNOWN, ROWS, in_order, of_stage, row_of


def test_rows__each_has_its_own_name_and_folder():
    folders = [row.folder for row in ROWS if row.folder]
    assert len(KNOWN) == len(ROWS) and len({*folders}) == len(folders)
    assert {*of_stage("fusion")} == {"average", "augmentation", "neighbour", "static", "supervised"}


def test_row_of__families_and_forms_have_titles_of_their_own():
    titles = {
        "encoder_centred": "Encoder, centred",
        "k64_whitened": "Adaptor k64, whitened",
        "size4": "Adaptor size4",
        "cub-one": "Supervised on cub",
        "best": "Supervised model best",
    }
    assert {name: row_of(name).title for name in titles} == titles
    assert row_of("cub-one").about == "one adaptor set, true labels: not comparable"
    assert not row_of("cub-one_whitened").is_comparable and row_of("k64_whitened").is_comparable


def test_in_order__adaptors_by_granularity_and_the_recommended_one_last():
    given = ["recommended", "cub-one", "supervised", "k8", "neighbour", "k4", "average", "one_set", "encoder", "pixels"]
    assert in_order(given, ["k4", "k8"]) == [
        *("pixels", "encoder", "one_set", "k4", "k8", "average", "neighbour", "supervised", "cub-one", "recommended")
    ]
