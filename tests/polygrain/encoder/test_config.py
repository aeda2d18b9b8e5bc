import inspect

import pytest
import timm
from pydantic import ValidationError

from polygrain.encoder.config import NOT_FOR_CONSTRUCTORS, AdaptorConfig, Config, read_config

CONFIG = Config(architecture="a", size=8, resize=10, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


def test_read_config__gives_back_what_was_written(tmp_path):
    written = CONFIG.model_copy(update={"adaptors": AdaptorConfig(names=["k2"], width=4, fusion="average")})
    (tmp_path / "config.json").write_text(written.model_dump_json())
    assert read_config(tmp_path) == written


@pytest.mark.parametrize("content", [b"[]", b'{"architecture": "a", "unknown": 1}'])
def test_read_config__names_a_missing_or_damaged_file(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config.json is missing or damaged .*; run the stage that writes it, "):
        read_config(tmp_path)


@pytest.mark.parametrize("name", sorted(NOT_FOR_CONSTRUCTORS))
def test_config__refuses_arguments_that_open_files_or_fetch(name):
    assert name in inspect.signature(timm.create_model).parameters or name == "features_only"
    with pytest.raises(ValidationError, match=f"'{name}' cannot be set"):
        Config(**CONFIG.model_dump() | {"kwargs": {name: "/etc/passwd"}})
