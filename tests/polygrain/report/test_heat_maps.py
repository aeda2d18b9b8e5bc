import re

from polygrain.report import heat_maps


def test_heat_map__hue_tells_the_side_and_opacity_the_distance():
    drawn = heat_maps.heat_map("label", ["k2", "k4"], ["1"], [[0.5], [0.4]], centre=0.45, limit=0.1)
    assert re.findall(r'class="heat (\w+)".*?fill-opacity="([0-9.]+)"', drawn) == [("more", "0.500"), ("less", "0.500")]
    assert "k4, layer 1: 40.0 %" in drawn
