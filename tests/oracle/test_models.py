"""Every family beside Transformers, live: random configs, all heads, fp32 and bf16, padding, the
cache, and the same numbers wherever the weights lie."""

import json
import os
import pathlib
import random
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file

CASES = int(os.environ.get("HAUL_MODEL_CASES", "10"))
BUILD = pathlib.Path(os.environ.get("HAUL", "build/haul")).resolve().parent
NEW_TOKENS = 64

CLASSES = {
    "gpt2": ["GPT2LMHeadModel", "GPT2ForSequenceClassification", "GPT2Model"],
    "bert": ["BertForMaskedLM", "BertForSequenceClassification", "BertModel"],
    "llama": ["LlamaForCausalLM", "LlamaForSequenceClassification", "LlamaModel"],
    "mistral": ["MistralForCausalLM", "MistralForSequenceClassification", "MistralModel"],
    "qwen2": ["Qwen2ForCausalLM", "Qwen2ForSequenceClassification", "Qwen2Model"],
    "qwen3": ["Qwen3ForCausalLM", "Qwen3ForSequenceClassification", "Qwen3Model"],
    "t5": ["T5ForConditionalGeneration", "T5EncoderModel"],
    "bloom": ["BloomForCausalLM", "BloomForSequenceClassification", "BloomModel"],
}
GENERATES = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration")


class Runner:
    """The program that runs models, kept open over the tests."""

    def __init__(self):
        self.process = subprocess.Popen([BUILD / "tests/support/run_cases"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)

    def __call__(self, **line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer


@pytest.fixture(scope="module")
def runner():
    runner = Runner()
    yield runner
    runner.process.stdin.close()
    assert runner.process.wait() == 0


def rope(rng, positions):
    kind = rng.choice(["default", "linear", "dynamic", "yarn", "llama3"])
    rope = {"rope_type": kind, "rope_theta": rng.choice([1000.0, 10000.0, 500000.0])}
    if kind != "default":
        rope["factor"] = rng.choice([2.0, 4.0])
    if kind in ("yarn", "llama3"):
        rope["original_max_position_embeddings"] = positions // 2
    if kind == "yarn" and rng.random() < 0.5:
        rope.update(beta_fast=16.0, beta_slow=2.0)
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=4.0)
    return rope


def config_of(family, case):
    rng = random.Random(f"{family} {case}")
    head_size = rng.choice([4, 8, 16])
    heads = rng.choice([2, 4, 6])
    common = {"vocab_size": rng.choice([97, 256]), "pad_token_id": 3, "eos_token_id": 2,
              "bos_token_id": 1, "num_labels": rng.choice([2, 5])}
    layers = rng.choice([1, 2, 3])
    if family == "gpt2":
        return {**common, "n_embd": heads * head_size, "n_head": heads, "n_layer": layers,
                "n_positions": 128, "n_inner": rng.choice([None, 40]),
                "activation_function": rng.choice(["gelu_new", "relu", "gelu"]),
                "scale_attn_by_inverse_layer_idx": rng.random() < 0.3,
                "tie_word_embeddings": rng.random() < 0.7}
    if family == "bert":
        return {**common, "hidden_size": heads * head_size, "num_attention_heads": heads,
                "num_hidden_layers": layers, "intermediate_size": 48,
                "max_position_embeddings": 128, "hidden_act": rng.choice(["gelu", "relu", "silu"]),
                "tie_word_embeddings": rng.random() < 0.7}
    if family == "bloom":
        return {**common, "hidden_size": heads * head_size, "n_head": heads, "n_layer": layers,
                "apply_residual_connection_post_layernorm": rng.random() < 0.5,
                "tie_word_embeddings": rng.random() < 0.7}
    if family == "t5":
        return {**common, "d_model": 32, "num_heads": heads, "d_kv": head_size, "d_ff": 48,
                "num_layers": layers, "num_decoder_layers": rng.choice([1, 2]),
                "relative_attention_num_buckets": rng.choice([8, 32]),
                "relative_attention_max_distance": rng.choice([20, 128]),
                "feed_forward_proj": rng.choice(["relu", "gated-gelu"]),
                "tie_word_embeddings": rng.random() < 0.5, "decoder_start_token_id": 3}
    config = {**common, "hidden_size": heads * head_size, "num_attention_heads": heads,
              "num_key_value_heads": rng.choice([h for h in (1, 2, 3, heads) if heads % h == 0]),
              "num_hidden_layers": layers, "intermediate_size": 48,
              "max_position_embeddings": rng.choice([64, 256]),
              "tie_word_embeddings": rng.random() < 0.5}
    config["rope_parameters"] = rope(rng, config["max_position_embeddings"])
    if config["rope_parameters"]["rope_type"] != "dynamic":
        config["max_position_embeddings"] = 256
    if family in ("llama", "qwen3"):
        config["attention_bias"] = rng.random() < 0.5
    if family == "llama":
        config["mlp_bias"] = rng.random() < 0.5
    if family == "qwen3":
        config["head_dim"] = head_size * rng.choice([1, 2])
    if family == "mistral":
        config["sliding_window"] = rng.choice([None, 7, 16])
    if family in ("qwen2", "qwen3") and rng.random() < 0.6:
        config.update(use_sliding_window=True, sliding_window=rng.choice([5, 16]),
                      max_window_layers=rng.choice([0, 1]))
    return config


def build(family, class_name, case):
    torch.manual_seed(case)
    config = transformers.CONFIG_MAPPING[family](**config_of(family, case))
    model = getattr(transformers, class_name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # what begins as ones and zeros tells little
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def inputs_of(model, case, rows=3, columns=11):
    rng = torch.Generator().manual_seed(case)
    ids = torch.randint(4, model.config.vocab_size, (rows, columns), generator=rng)
    attended = torch.ones_like(ids)
    return ids, attended


def first_output(model, ids, attended, positions=None):
    arguments = {"input_ids": ids, "attention_mask": attended}
    if positions is not None:
        arguments["position_ids"] = positions
    if model.config.is_encoder_decoder and "Conditional" in type(model).__name__:
        arguments["decoder_input_ids"] = torch.full((ids.shape[0], 1), 3)
    with torch.no_grad():
        output = model(**arguments)
    return (output.logits if "logits" in output else output[0]).float()


def tolerance(dtype, terms):
    """How far sums of so many terms may lie apart, as a share of the largest value."""
    return {torch.float32: 2.0 ** -23, torch.bfloat16: 2.0 ** -8}[dtype] * 4 * terms ** 0.5


def close(ours, theirs, dtype, terms, rows=None):
    assert ours.shape == theirs.shape
    if rows is not None:
        ours, theirs = ours[rows], theirs[rows]
    scale = theirs.abs().max().clamp_min(1.0)
    worst = (ours - theirs).abs().max() / scale
    assert worst <= tolerance(dtype, terms), float(worst)


CASE_LIST = [(family, name, case) for family, names in CLASSES.items() for name in names
             for case in range(CASES)]


@pytest.mark.parametrize("family,class_name,case", CASE_LIST)
def test_gives_what_transformers_gives(runner, tmp_path, family, class_name, case):
    model = build(family, class_name, case)
    model.save_pretrained(tmp_path / "model")
    ids, attended = inputs_of(model, case)
    terms = 64 * max(1, getattr(model.config, "num_hidden_layers", 1))

    answers = []

    def output(**more):
        answers.append(runner(ids=ids.tolist(), output=str(tmp_path / "out"), **more))
        return load_file(tmp_path / "out")["output"]

    folder = str(tmp_path / "model")
    ours = output(model=folder, dtype="float32", context=96)
    close(ours, first_output(model, ids, attended), torch.float32, terms)

    # The same bits wherever the weights lie.
    offload = str(tmp_path / "offload")
    rng = random.Random(case)
    room = answers[-1]["used"] - int(answers[-1]["weights"] * rng.uniform(0.1, 0.7))
    names = [name for name, _ in model.named_children()]
    for placement in ({"device_map": {name: rng.choice(["cpu", "disk"]) for name in names}},
                      {"device_map": {"": "disk"}},
                      {"max_memory": f"cpu={room + 1_000_000}"}):
        again = output(model=folder, dtype="float32", context=96, offload_folder=offload,
                       **placement)
        assert torch.equal(again, ours), placement

    # Padding: on the right where all look at all, else on the left.
    attended[1, :4] = attended[2, :7] = 0
    positions = (attended.cumsum(1) - 1).clamp_min(0)
    if family in ("bert", "t5"):
        attended = attended.flip(1)
        positions = None
    ids = torch.where(attended == 1, ids, torch.full_like(ids, 3))
    padded = output(attended=attended.tolist())
    takes = positions is not None and family != "bloom"
    theirs = first_output(model, ids, attended, positions if takes else None)
    rows = attended.bool() if padded.dim() == 3 and padded.shape[1] == ids.shape[1] else None
    close(padded, theirs, torch.float32, terms, rows)

    half = build(family, class_name, case).to(torch.bfloat16)
    ids, attended = inputs_of(model, case)
    ours = output(model=folder, dtype="bfloat16", context=96)
    close(ours, first_output(half, ids, attended), torch.bfloat16, terms)


@pytest.mark.parametrize("family,class_name,case",
                         [c for c in CASE_LIST if c[1].endswith(GENERATES)])
def test_generates_the_same_ids(runner, tmp_path, family, class_name, case):
    model = build(family, class_name, case)
    model.generation_config.update(do_sample=False, eos_token_id=None)
    model.save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    config["eos_token_id"] = None
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    ids, attended = inputs_of(model, case)
    prompts = [ids[0].tolist(), ids[1, 4:].tolist(), ids[2, 7:].tolist()]
    attended[1, :4] = attended[2, :7] = 0
    if family == "t5":
        attended, ids = attended.flip(1), ids.clone()
        ids[1, :7], ids[2, :4] = ids[1, 4:].clone(), ids[2, 7:].clone()
    ids = torch.where(attended == 1, ids, torch.full_like(ids, 3))
    with torch.no_grad():
        theirs = model.generate(input_ids=ids, attention_mask=attended, do_sample=False,
                                max_new_tokens=NEW_TOKENS, eos_token_id=None, pad_token_id=3)
    new = theirs[:, 1:] if family == "t5" else theirs[:, ids.shape[1]:]
    answer = runner(model=str(tmp_path / "model"), dtype="float32", context=96, prompts=prompts,
                    max_new_tokens=NEW_TOKENS)
    assert answer["generated"] == new.tolist()
    # One alone, and from disk: the same.
    alone = runner(prompts=[prompts[1]], max_new_tokens=NEW_TOKENS)["generated"]
    assert alone[0] == new[1].tolist()
    disk = runner(model=str(tmp_path / "model"), dtype="float32", context=96, prompts=prompts,
                  max_new_tokens=NEW_TOKENS, device_map={"": "disk"},
                  offload_folder=str(tmp_path / "offload"))
    assert disk["generated"] == new.tolist()
