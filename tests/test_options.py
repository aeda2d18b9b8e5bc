"""The numbers of options. One more raises a number here, and the commit says what it gives (CONTRIBUTING)."""

from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.tokens import KeyToken
from typer.main import get_command

from docs.extensions.reference import models
from polygrain.cli.main import app

ROOT = Path(__file__).parents[1]
KEYS = 511  # written in params.yaml, names of items and merge keys included
OPTIONS = 9  # of `polygrain new`


def test_params__has_no_more_keys_than_were_decided() -> None:
    tokens = YAML().scan((ROOT / "params.yaml").read_text(encoding="utf-8"))
    assert sum(isinstance(token, KeyToken) for token in tokens) <= KEYS


def test_new__has_no_more_options_than_were_decided() -> None:
    words = {word for parameter in get_command(app).commands["new"].params for word in parameter.opts}
    assert len({word for word in words if word.startswith("--")} - {"--help"}) <= OPTIONS


def test_params__every_key_has_a_description() -> None:
    for section, model in models().items():
        schema = model.model_json_schema()
        for owner, part in {section: schema, **schema.get("$defs", {})}.items():
            missing = [key for key, value in part["properties"].items() if not ({"description", "$ref"} & set(value))]
            assert not missing, f"{owner}: give these fields a Field(description=...)"
