import pytest

from polygrain.encoder.arguments import KINDS, safe
from tests.helpers.small import CONFIG


def test_safe__keeps_sizes_and_switches_as_they_are():
    assert safe(CONFIG.kwargs) == CONFIG.kwargs and list(safe(CONFIG.kwargs)) == list(CONFIG.kwargs)
    assert safe({"pad_type": "same", "class_token": False}) == {"pad_type": "same", "class_token": False}


@pytest.mark.parametrize("name", ["checkpoint_path", "pretrained", "pretrained_cfg", "features_only", "scriptable"])
def test_safe__refuses_what_opens_files_or_makes_something_else(name):
    assert name not in KINDS
    with pytest.raises(ValueError, match=f"'{name}' cannot be set; known are .*img_size"):
        safe({name: "/etc/passwd"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("img_size", 10**9), ("depth", 0), ("embed_dim", 10**30), ("drop_rate", 1.0), ("qkv_bias", 1), ("depth", True)],
)
def test_safe__refuses_what_is_out_of_bounds(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}: "):
        safe({name: value})
