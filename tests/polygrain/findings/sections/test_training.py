from polygrain.findings.sections import training


def test_charts__leave_out_what_has_no_curve():
    epochs = [{"epoch": epoch, "loss": 2.0, "accuracy": 0.5} for epoch in (1.0, 2.0)]
    histories = {"adaptor@k4": epochs, "fusion@average": [], "fusion@neighbour": epochs[:1]}
    titles = [chart["title"] for chart in training.charts(histories)]
    assert titles == ["Adaptors: classification loss", "Adaptors: pseudo-label accuracy"]
