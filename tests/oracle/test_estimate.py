"""`haul estimate` against Accelerate's own code, on models that Transformers and timm build empty.

Every family, on random configs: the same total, largest layer and names of it, the same four rows,
and the same table to the character. Models keep their ties: Accelerate's command builds its model
in a scope that copies parameters, and so loses them, but its functions count a tied tensor once.
"""

import json
import os
import subprocess

import pytest
import timm
import torch
from accelerate.commands.estimate import create_ascii_table, estimate_training_usage
from accelerate.utils import calculate_maximum_sizes, convert_bytes
from configs import CASES, FAMILIES, build, random_config

HAUL = os.environ.get("HAUL", "build/haul")
DTYPES = {"float32": 1, "float16": 2, "int8": 4, "int4": 8}


def haul(*arguments):
    done = subprocess.run([HAUL, "estimate", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def peer_rows(model):
    """Each row as Accelerate's command reckons it, in bytes."""
    total, (largest, names) = calculate_maximum_sizes(model)
    rows = []
    for dtype, divisor in DTYPES.items():
        training = max(estimate_training_usage(total, dtype).values())
        sizes = (largest, total) if divisor == 1 else (largest / divisor, total / divisor)
        rows.append((dtype, *sizes, None if training == -1 else training, names))
    return rows


def peer_table(name, rows):
    cells = [
        [dtype, convert_bytes(largest), convert_bytes(total),
         "N/A" if training is None else convert_bytes(training)]
        for dtype, largest, total, training, _ in rows
    ]
    headers = ["dtype", "Largest Layer", "Total Size", "Training using Adam"]
    return create_ascii_table(headers, cells, f"Memory Usage for loading `{name}`")


def assert_same(model, context, *arguments):
    expected = peer_rows(model)
    report = json.loads(haul(*arguments, "--json"))
    ours = [
        (row["dtype"], row["largest_layer"], row["total"], row["training_adam"],
         row["largest_layer_names"])
        for row in report["rows"]
    ]
    assert ours == expected, context
    assert report["parameters"] == sum(p.numel() for p in model.parameters()), context
    assert haul(*arguments).startswith(peer_table(arguments[0], expected) + "\n"), context


@pytest.mark.parametrize("family", FAMILIES)
def test_random_configs_give_the_sizes_that_accelerate_gives(family, tmp_path):
    heads = FAMILIES[family][1]
    for case in range(CASES):
        class_name = heads[case % len(heads)]
        config = random_config(family, class_name, f"estimate {case}")
        path = tmp_path / f"{case}.json"
        path.write_text(json.dumps(config))
        assert_same(build(config, class_name), json.dumps(config), path)
        assert_same(build(config), json.dumps(config), path, "--base-model")


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet152"])
def test_a_timm_model_has_the_sizes_that_accelerate_gives(name):
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False)
    assert_same(model, name, name, "--library_name", "timm")


@pytest.mark.parametrize("title", range(1, 90, 4))
def test_the_table_is_laid_out_alike_for_every_length_of_the_title(title, tmp_path):
    config = {"architectures": ["BertModel"], "model_type": "bert", "num_hidden_layers": 1}
    path = tmp_path / ("n" * title) / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    done = subprocess.run(
        [os.path.abspath(HAUL), "estimate", "n" * title], cwd=tmp_path, capture_output=True,
        text=True,
    )
    expected = peer_table("n" * title, peer_rows(build(config, "BertModel")))
    assert done.stdout.startswith(expected + "\n")
