import pytest

from polygrain.new.request import Request, bare


@pytest.mark.parametrize("address", ["", "timm/", "hf-hub:timm/", "hf_hub:timm/", "https://huggingface.co/timm/"])
def test_bare__a_name_of_the_hub_is_that_of_timm(address):
    assert bare(f"{address}resnet18.a1_in1k") == "resnet18.a1_in1k"
    Request(f"{address}resnet18").require_sense()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("no/such"), "no/such does not exist"),
        (Request("such.pth"), "such.pth does not exist"),
        (Request(mean=[0.5]), "--mean is about another encoder"),
    ],
)
def test_require_sense__says_which_word_is_wrong(request_, message):
    with pytest.raises(ValueError, match=message):
        request_.require_sense()
    Request(side=64).require_sense()
