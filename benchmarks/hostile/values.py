"""Senseless values of params.yaml: for every field that a stage declares, what no run could mean.

A case is the root's params.yaml with one value changed, judged by what the Makefile asks before every run (`check`).
The cases follow from what the stages declare: a field is to refuse other types, NaN and the infinities, what is below
its least and above its largest value, 10^30, names that nothing has, and emptiness. A number without a largest value is
therefore `silent`. What one of these values would mean all the same stands in MEANINGFUL.
"""

import copy
import importlib
import math
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.hostile.outcome import Outcome
from stages.core.runner.command import STAGES, check
from stages.core.runner.lists import Lists

COUNT = 1300
ROOT = Path(__file__).parents[2]
PATIENCE = 10  # seconds
NOWHERE, OUTSIDE, SHELL = "no-such-name", "../../etc/passwd", "$(touch P)"
Place = tuple[str | int, ...]

# Where a value is no slip, by the last part of its field's name.
MEANINGFUL: dict[str, list[Any]] = {
    "listed": [NOWHERE, OUTSIDE, SHELL],  # a file of the pairs' folder, which may come later
    "layers": [NOWHERE, OUTSIDE, SHELL],  # a module of a network that is built only when its weights are there
}
# Of a path that is there, only what reads it can say that it is no folder of images.
MEANINGFUL |= {"path": [OUTSIDE], "weights": [OUTSIDE]}
# Sections that the root leaves empty, so that their fields are tried, too.
FILLED = {
    "gsp_folds.augmentation": {
        "smallest_crop": 0.5,
        "turn": 0,
        "flip": 0.5,
        "stroke": 0,
        "jitter": 0,
        "tint": 0,
        "grey": 0,
        "blur": 0,
    },
    "gsp_folds.losses.xbm": {
        "batch_classes": 8,
        "per_class": 4,
        "rate": 1,
        "proxy_rate": 1,
        "warmup": 0,
        "values": {"margin": 0.5, "memory": 800, "start": 1025},
    },
    "gsp_folds.losses.multi_similarity": {
        "batch_classes": 8,
        "per_class": 4,
        "rate": 1,
        "proxy_rate": 1,
        "warmup": 0,
        "values": {"alpha": 2.0, "beta": 40.0, "base": 0.5, "epsilon": None},
    },
    "gsp_folds.poolings.otp": {"width": 8, "prototypes": 16, "epsilon": 2.0, "iterations": 10},
    "gsp_folds.poolings.cbam": {"reduction": 16, "kernel": 3},
    "gsp_folds.poolings.gemean": {"p": 3.0},
    "gsp_folds.poolings.weldon": {"highest": 3, "lowest": 3},
    "gsp_folds.poolings.tfm": {"width": 128, "layers": 2, "heads": 4},
    "gsp_folds.poolings.gsop": {"attention": 128, "grid": 4},
    "gsp_folds.poolings.netvlad": {"width": 8, "centres": 16},
    "gsp_folds.poolings.t_smk": {"window": 3},
    "gsp_folds.poolings.gemax": {"ridge": 1.0},
    "gsp_report.published": {"tables": [1, 2], "network": "bn_inception"},
    "gsp_runs.c2-gsp.values": {"mu": 0.3},
    "mrt": {"tables": "evaluation"},
    "supervised_models": {"all-one": {"on": "all", "how": "one"}},
    "mpcl_encoder.images": {"digits": "all"},
    "mpcl_probe.tasks": ["digits"],
    "tll_features.extractors.timm": {
        "library": "timm",
        "network": "resnet10t",
        "kwargs": {},
        "side": 64,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "layers": ["layer1"],
    },
}
# Of networks: what leads out of the project, and what none of its networks has.
ARGUMENTS = {
    "checkpoint_path": "/etc/passwd",
    "pretrained_cfg": "x",
    "pretrained": True,
    "features_only": True,
    "scriptable": True,
    "cache_dir": "/tmp",
    "exportable": True,
    "pretrained_cfg_overlay": "x",
    "in_chans": 4,
    "num_heads": 7,
    "depth": 10**30,
    "img_size": 0,
    "embed_dim": -8,
    "patch_size": math.nan,
    "mlp_ratio": math.inf,
    "drop_rate": 1.5,
    "class_token": "yes",
    "no_such_argument": 1,
    "global_pool": NOWHERE,
    "qkv_bias": 3,
    "window_size": 10**9,
    "init_values": -1.0,
    "": 1,
}


GONE = object()  # the key itself is taken out
Case = tuple[Place, Any]


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Every field before any is tried a second time."""
    values = base()
    for path in ("requirements.lock", "encoders"):
        (folder / path).symlink_to(ROOT / path)
    drawn = list(cases(values))
    random.Random(seed).shuffle(drawn)
    rounds: Counter[Place] = Counter()
    ranked = []
    for place, bad in drawn:
        ranked.append((rounds[place], place, bad))
        rounds[place] += 1
    for _, place, bad in sorted(ranked, key=lambda case: case[0])[:count]:
        yield judge(values, place, bad, folder)


def base() -> dict:
    """The root's values, with its empty sections filled."""
    values = YAML(typ="safe").load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for key, value in FILLED.items():
        *outer, last = key.split(".")
        at(values, outer)[last] = copy.deepcopy(value)
    return values


def at(values: Any, place: Iterable[str | int]) -> Any:
    for key in place:
        values = values[key]
    return values


def cases(values: dict) -> Iterator[Case]:
    """(place, senseless value) for every field of every stage's Params and of the lists."""
    models = {(stage,): importlib.import_module(f"stages.{stage}") for stage in sorted(values) if is_stage(stage)}
    schemas = {(): Lists} | {place: module.Params for place, module in models.items() if hasattr(module, "Params")}
    for place, model in schemas.items():
        schema = model.model_json_schema()
        section = at(values, place) if place else {key: values[key] for key in Lists.model_fields}
        yield from below(schema, schema.get("$defs", {}), section, place)
    for name, bad in ARGUMENTS.items():
        yield ("mpcl_encoder", "network", "kwargs", name), bad
        yield ("tll_features", "extractors", "timm", "kwargs", name), bad


def is_stage(name: str) -> bool:
    return (STAGES / f"{name}.py").exists()


def below(schema: dict, classes: dict, value: Any, place: Place) -> Iterator[Case]:
    """The cases of one value and of all within it."""
    options = [resolved(option, classes) for option in schema.get("anyOf", [schema])]
    nullable = any(option.get("type") == "null" for option in options)
    fitting = [option for option in options if fits(option, value)]
    own = fitting[0] if fitting and value is not None else options[0]
    meant = MEANINGFUL.get(next((part for part in reversed(place) if isinstance(part, str)), ""), [])
    if place:
        for bad in senseless(own, nullable, {option.get("type") for option in options}):
            if not any(bad is ok or bad == ok for ok in meant):
                yield place, bad
    if isinstance(value, dict):
        known = own.get("properties", {})
        for key, item in value.items():
            inner = known.get(key) or own.get("additionalProperties") or next(iter(own["patternProperties"].values()))
            yield from below(inner, classes, item, (*place, key))
        for key in known:
            if key in own.get("required", []):
                yield (*place, key), GONE
        if not known:
            first = next(iter(value.values()), None)
            yield from (((*place, name), first) for name in ("", "A B", "../x", "x; touch P", "é"))
        yield (*place, NOWHERE.replace("-", "_") + "!"), 1
    elif isinstance(value, list) and value:
        for index, inner in enumerate(own.get("prefixItems") or [own["items"]]):
            yield from below(inner, classes, value[index], (*place, index))


def resolved(schema: dict, classes: dict) -> dict:
    return classes[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema


def fits(option: dict, value: Any) -> bool:
    kinds = {
        "integer": int,
        "number": (int, float),
        "string": str,
        "boolean": bool,
        "array": list,
        "object": dict,
        "null": type(None),
    }
    if "enum" in option or "const" in option:
        return value in option.get("enum", [option.get("const")])
    return isinstance(value, kinds[option["type"]]) and isinstance(value, bool) == (option["type"] == "boolean")


def senseless(schema: dict, nullable: bool, types: set[str | None]) -> list[Any]:
    """What no value of this kind can be."""
    kind = schema.get("type")
    found: list[Any] = [] if nullable or kind == "null" else [None]
    if "enum" in schema or "const" in schema:
        return [*found, NOWHERE, "", 3, [], {}, math.nan, True]
    numbers = [math.nan, math.inf, -math.inf, -1e30, 10**30]
    if kind in ("integer", "number"):
        least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
        if "exclusiveMinimum" in schema:
            found.append(least)
        found += [] if least is None else [least - 1]
        found += [] if most is None else [most * 2 + 1]
        found += ["", "many", [], {}, "1", *numbers]
        found += [] if "boolean" in types else [True]
        return found + ([2.5] if kind == "integer" and "number" not in types else [])
    if kind == "string":
        return [
            *found,
            "",
            NOWHERE,
            "x" * 100_000,
            "a\nb",
            "\0",
            "../../etc/passwd",
            "$(touch P)",
            3,
            True,
            [],
            {},
            math.nan,
        ]
    if kind == "boolean":
        return [*found, "yes", "", [], {}, *([] if "integer" in types else [1, 0, *numbers])]
    if kind == "array":
        return [
            *found,
            NOWHERE,
            3,
            {},
            [None],
            [[]],
            [{}],
            [[1]] * 3,
            [3.5, "x"],
            [math.nan],
            ["x"] * 5_000,
            *([[]] if schema.get("minItems") else []),
        ]
    if kind == "null":
        return [3, NOWHERE, [], {"x": 1}, math.nan]
    return [*found, NOWHERE, 3, [], [1], True, math.nan, {"": 1}, {NOWHERE: NOWHERE}]


def judge(values: dict, place: Place, bad: Any, folder: Path) -> Outcome:
    """What the check that runs before a run makes of the file with this value."""
    tried = copy.deepcopy(values)
    *outer, last = place
    if bad is GONE:
        del at(tried, outer)[last]
    else:
        at(tried, outer)[last] = bad
    name, met = ".".join(map(str, place)), "no key" if bad is GONE else repr(bad)[:60]
    case, file, start = f"{name} = {met}", folder / "params.yaml", time.monotonic()
    with file.open("w", encoding="utf-8") as stream:
        YAML(typ="safe").dump(tried, stream)
    try:
        check(file)
    except (ValueError, OSError) as error:
        said = str(error)
        # The place, or where it is one of free names, that which holds it.
        named = any(".".join(map(str, place[:depth])) in said for depth in (len(place), len(place) - 1) if depth)
        verdict = "clear" if "params.yaml" in said and (named or str(last) in said) else "raw"
        verdict = "hang" if time.monotonic() - start > PATIENCE else verdict
        return Outcome(case, verdict, "" if verdict == "clear" else said[:300])
    except Exception as error:
        return Outcome(case, "raw", f"{type(error).__name__}: {error}"[:300])
    return Outcome(case, "silent", "accepted")
