"""`haul tree` against the models that Transformers and timm build empty, on random configs.

Every family and head: the same modules, classes, order, shapes, dtypes, persistence, ties and
unsplittable classes, and the same bare model for --base-model.
"""

import json
import os
import subprocess

import pytest
import timm
import torch
import transformers
from accelerate.utils import find_tied_parameters
from configs import CASES, FAMILIES, build, random_config
from safetensors.torch import load_file, save_file

HAUL = os.environ.get("HAUL", "build/haul")

DTYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
}


def haul_tree(path, *flags):
    done = subprocess.run([HAUL, "tree", str(path), "--json", *flags], capture_output=True, text=True)
    assert done.returncode == 0, f"{path}: {done.stderr}"
    return json.loads(done.stdout)


def flatten_tree(tree):
    modules = []

    def visit(node, path):
        parameters = [
            (name, spec["dtype"], tuple(spec["shape"]))
            for name, spec in node.get("parameters", {}).items()
        ]
        buffers = [
            (name, spec["dtype"], tuple(spec["shape"]), spec["persistent"])
            for name, spec in node.get("buffers", {}).items()
        ]
        modules.append((path, node["class"], parameters, buffers))
        for name, child in node.get("children", {}).items():
            visit(child, f"{path}.{name}" if path else name)

    visit(tree, "")
    return modules


def flatten_model(model):
    modules = []
    for path, module in model.named_modules(remove_duplicate=False):
        parameters = [
            (name, DTYPES[p.dtype], tuple(p.shape))
            for name, p in module._parameters.items()
            if p is not None
        ]
        buffers = [
            (name, DTYPES[b.dtype], tuple(b.shape), name not in module._non_persistent_buffers_set)
            for name, b in module._buffers.items()
            if b is not None
        ]
        modules.append((path, type(module).__name__, parameters, buffers))
    return modules


def assert_same(tree, model, context):
    ours, theirs = flatten_tree(tree), flatten_model(model)
    for mine, peer in zip(ours, theirs):
        assert mine == peer, context
    assert len(ours) == len(theirs), context
    ties = sorted(sorted(group) for group in tree.get("tied", []))
    assert ties == sorted(sorted(group) for group in find_tied_parameters(model)), context
    # Each group begins with the name that is registered, and so counted, first.
    order = {name: i for i, (name, _) in enumerate(model.named_parameters(remove_duplicate=False))}
    for group in tree.get("tied", []):
        assert group == sorted(group, key=order.get), context
    assert set(tree.get("no_split", [])) == set(getattr(model, "_no_split_modules", None) or []), context


@pytest.mark.parametrize(
    "family,class_name", [(f, head) for f, (_, heads) in FAMILIES.items() for head in heads]
)
def test_random_configs_give_the_tree_that_transformers_builds(family, class_name, tmp_path):
    for case in range(CASES):
        config = random_config(family, class_name, case)
        path = tmp_path / f"{case}.json"
        path.write_text(json.dumps(config))
        assert_same(haul_tree(path), build(config, class_name), json.dumps(config))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_without_sizes_has_the_defaults_of_its_class(family, tmp_path):
    config = {"architectures": [FAMILIES[family][1][0]], "model_type": family}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert_same(haul_tree(path), build(config, FAMILIES[family][1][0]), family)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bare_model_is_the_one_that_auto_model_builds(family, tmp_path):
    for case in range(3):
        heads = FAMILIES[family][1]
        config = random_config(family, heads[case * 2 % len(heads)], f"bare {case}")
        path = tmp_path / f"{case}.json"
        path.write_text(json.dumps(config))
        assert_same(haul_tree(path, "--base-model"), build(config), json.dumps(config))


@pytest.mark.parametrize(
    "name", ["resnet18", "resnet26", "resnet34", "resnet50", "resnet101", "resnet152"]
)
@pytest.mark.parametrize("classes", [None, 0, 10])
def test_a_timm_resnet_is_the_one_that_timm_builds(name, classes, tmp_path):
    config = {"architecture": name, "global_pool": "avg"}
    config |= {} if classes is None else {"num_classes": classes}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=1000 if classes is None else classes)
    assert_same(haul_tree(path), model, name)


def tiny_t5(folder, extra=None):
    """A T5 of random weights in a folder, its head untied when `extra` changes it."""
    torch.manual_seed(3)
    config = transformers.T5Config(d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2,
                                   vocab_size=31, feed_forward_proj="gated-gelu")
    model = transformers.T5ForConditionalGeneration(config)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        del state[name]
    state.update(extra or {})
    config.architectures = ["T5ForConditionalGeneration"]
    config.save_pretrained(folder)
    return state


def assert_loads_alike(folder):
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder)
    assert_same(haul_tree(folder), model, str(folder))
    return model


@pytest.mark.parametrize("own", [(), ("lm_head",), ("lm_head", "decoder.embed_tokens")])
def test_a_checkpoint_with_tables_of_its_own_unties_them(own, tmp_path):
    extra = {f"{name}.weight": torch.randn(31, 8) for name in own}
    save_file(tiny_t5(tmp_path, extra), tmp_path / "model.safetensors", {"format": "pt"})
    model = assert_loads_alike(tmp_path)
    assert (model.lm_head.weight is model.shared.weight) == (not own)


def test_equal_and_shared_tables_stay_tied(tmp_path):
    state = tiny_t5(tmp_path)
    state["lm_head.weight"] = state["shared.weight"].clone()
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    assert_loads_alike(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state["lm_head.weight"] = state["shared.weight"]
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert_loads_alike(tmp_path)


def test_an_unknown_architecture_has_the_tensors_of_its_checkpoint(tmp_path):
    config = transformers.GPTNeoXConfig(hidden_size=8, num_hidden_layers=12, num_attention_heads=2,
                                        intermediate_size=12, vocab_size=31)
    model = transformers.GPTNeoXForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    tree = haul_tree(tmp_path)
    ours = {
        f"{path}.{name}": (dtype, shape)
        for path, _, parameters, _ in flatten_tree(tree)
        for name, dtype, shape in parameters
    }
    held = load_file(tmp_path / "model.safetensors")
    assert ours == {name: (DTYPES[t.dtype], tuple(t.shape)) for name, t in held.items()}
    layers = tree["children"]["gpt_neox"]["children"]["layers"]["children"]
    assert list(layers) == [str(i) for i in range(12)]
    assert {layer["class"] for layer in layers.values()} == set(tree["no_split"]) == {"Block"}
