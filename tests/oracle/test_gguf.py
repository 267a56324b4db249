"""GGUF files against the gguf package, and their mapping against Transformers' own loader."""

import glob
import json
import os
import subprocess

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file

HAUL = os.environ.get("HAUL", "build/haul")
QUANTISED = [
    Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0,
    Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K,
]  # fmt: skip


def convert(source, target):
    command = [HAUL, "convert", str(source), str(target), "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    tensors = {}
    for path in sorted(glob.glob(f"{target}/*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def assert_same_bits(got, expected, name):
    """Equal bits; a NaN is a NaN, whose sign and payload the hardware chooses."""
    got, expected = got.numpy(), np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape, name
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(got), nan), name
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    assert np.array_equal(got.view(bits)[~nan], expected.view(bits)[~nan]), name


def write(path, architecture, entries, tensors, **options):
    writer = gguf.GGUFWriter(str(path), architecture, **options)
    entries(writer)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def special_blocks(kind, random):
    """Random blocks, then each byte alone in every place, then each half in every pair of bytes
    that may hold a scale."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = [random.integers(0, 256, (512, size), dtype=np.uint8)]
    blocks.append(np.repeat(np.arange(256, dtype=np.uint8)[:, None], size, axis=1))
    halves = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01]
    for at in [0, 2, size - 2, size - 4]:
        for half in halves:
            block = random.integers(0, 256, (2, size), dtype=np.uint8)
            block[:, at : at + 2] = np.frombuffer(np.uint16(half).tobytes(), dtype=np.uint8)
            blocks.append(block)
    return np.concatenate(blocks)


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_every_quantised_type_expands_to_the_same_bits(kind, tmp_path):
    random = np.random.default_rng(int(kind))
    blocks = special_blocks(kind, random)
    # Several blocks a row, and a second tensor of one block, so that the data is cut in odd places.
    rows = blocks[: len(blocks) // 2 * 2].reshape(-1, 2 * blocks.shape[1])
    tensors = {"rows": (rows, kind), "one": (blocks[:1], kind)}
    write(tmp_path / "m.gguf", "none", lambda writer: None, tensors)
    found = convert(tmp_path / "m.gguf", tmp_path / "out")
    with np.errstate(all="ignore"):
        for name, (data, _) in tensors.items():
            assert_same_bits(found[name], gguf.quants.dequantize(data, kind), name)


def test_plain_types_are_read_back_as_written(tmp_path):
    random = np.random.default_rng(1)
    plain = {
        Type.F32: np.float32, Type.F16: np.float16, Type.F64: np.float64, Type.I8: np.int8,
        Type.I16: np.int16, Type.I32: np.int32, Type.I64: np.int64,
    }  # fmt: skip
    tensors = {}
    for kind, dtype in plain.items():
        raw = random.integers(0, 256, (3, 5, 7 * np.dtype(dtype).itemsize), dtype=np.uint8)
        tensors[kind.name] = (raw.view(dtype), None)
    brain = random.integers(0, 256, (4, 12), dtype=np.uint8)
    tensors["BF16"] = (brain, Type.BF16)
    for alignment in (32, 64):
        path = tmp_path / f"{alignment}.gguf"
        align = lambda writer: writer.add_custom_alignment(alignment)  # noqa: E731
        write(path, "none", align, tensors)
        found = convert(path, tmp_path / f"out{alignment}")
        assert found["BF16"].dtype == torch.bfloat16 and found["BF16"].shape == (4, 6)
        assert found["BF16"].view(torch.uint8).numpy().tobytes() == brain.tobytes()
        for kind in plain:
            got, expected = found[kind.name].numpy(), tensors[kind.name][0]
            assert got.shape == expected.shape and got.tobytes() == expected.tobytes(), kind


def test_models_in_several_files_are_joined(tmp_path):
    tensors = {f"t{i}": (np.full((4, 4), i, dtype=np.float32), None) for i in range(5)}
    write(tmp_path / "m.gguf", "none", lambda writer: None, tensors, split_max_tensors=2)
    assert len(list(tmp_path.glob("*-of-00003.gguf"))) == 3
    found = convert(tmp_path, tmp_path / "out")
    assert {name: int(tensor[0, 0]) for name, tensor in found.items()} == {f"t{i}": i for i in range(5)}


# --- families ---------------------------------------------------------------------------------


def interleave(weight, heads):
    """What the conversion does to the rows of queries and keys in models of Llama's kind."""
    size = weight.shape[0] // heads
    return weight.reshape(heads, 2, size // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def separate_heads(weight, heads):
    """What it does to BLOOM's joined projections."""
    return weight.reshape(heads, 3, -1, *weight.shape[1:]).swapaxes(0, 1).reshape(weight.shape)


def to_layout(architecture, name, weight, config):
    if architecture == "llama":
        if ".attn_q." in name:
            return interleave(weight, config.num_attention_heads)
        if ".attn_k." in name:
            return interleave(weight, config.num_key_value_heads)
    if architecture == "bloom" and ".attn_qkv." in name:
        return separate_heads(weight, config.n_head)
    if architecture == "gpt2" and weight.ndim == 2 and name.startswith("blk."):
        return weight.T
    return weight


def decoder_entries(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.model_type == "qwen3":
        writer.add_key_length(config.head_dim)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_vocab_size(config.vocab_size)


def gpt2_entries(writer, config):
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def bloom_entries(writer, config):
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def bert_entries(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)


def t5_entries(writer, config):
    writer.add_context_length(512)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_block_count(config.num_layers)
    if config.num_decoder_layers != config.num_layers:
        writer.add_decoder_block_count(config.num_decoder_layers)
    writer.add_head_count(config.num_heads)
    writer.add_key_length(config.d_kv)
    writer.add_relative_attn_buckets_count(config.relative_attention_num_buckets)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_decoder_start_token_id(0)


def families():
    import transformers as t

    decoder = dict(
        vocab_size=61, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    t5 = dict(vocab_size=61, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return {
        "llama": ("llama", t.LlamaForCausalLM, t.LlamaConfig(**decoder), decoder_entries),
        "llama-bias-tied": (
            "llama", t.LlamaForCausalLM,
            t.LlamaConfig(**decoder, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
            decoder_entries,
        ),
        "qwen2": ("qwen2", t.Qwen2ForCausalLM, t.Qwen2Config(**decoder), decoder_entries),
        "qwen3": ("qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**decoder, head_dim=32), decoder_entries),
        "gpt2": (
            "gpt2", t.GPT2LMHeadModel,
            t.GPT2Config(vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4), gpt2_entries,
        ),
        "bloom": (
            "bloom", t.BloomForCausalLM,
            t.BloomConfig(vocab_size=61, hidden_size=32, n_layer=2, n_head=4), bloom_entries,
        ),
        "bert": (
            "bert", t.BertModel,
            t.BertConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                         intermediate_size=64, max_position_embeddings=40),
            bert_entries,
        ),
        "t5": (
            "t5", t.T5ForConditionalGeneration,
            t.T5Config(**t5, num_decoder_layers=3, feed_forward_proj="relu"), t5_entries,
        ),
        "t5-gated": (
            "t5", t.T5ForConditionalGeneration,
            t.T5Config(**t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), t5_entries,
        ),
    }  # fmt: skip


def gguf_name(names, prefix, name):
    stem, suffix = name.rsplit(".", 1)
    for candidate in (stem, stem.removeprefix(prefix)):
        if (found := names.get_name(candidate)) is not None:
            return f"{found}.{suffix}"
    return None


# Names that a conversion drops: copies of the embedding, and BERT's pooler.
DROPPED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "pooler.dense.weight",
           "pooler.dense.bias")  # fmt: skip


def write_model(path, architecture, model, entries):
    config = model.config
    arch = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    names = gguf.get_tensor_name_map(arch, 8)
    tensors, expected = {}, {}
    for name, weight in model.state_dict().items():
        # T5 says that its head is tied also when it was made not to be.
        tied = config.tie_word_embeddings and getattr(config, "scale_decoder_outputs", True)
        if name in DROPPED or (tied and name == "lm_head.weight"):
            continue
        found = gguf_name(names, "transformer.", name)
        assert found is not None, name
        expected[name] = weight
        data = to_layout(architecture, found, weight.numpy(), config)
        tensors[found] = (np.ascontiguousarray(data), None)
    write(path, architecture, lambda writer: entries(writer, config), tensors)
    return expected


def random_model(model_class, config):
    torch.manual_seed(3)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def run(model):
    ids = torch.arange(1, 12)[None]
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **extra)[0]


@pytest.mark.parametrize(
    "name",
    ["llama", "llama-bias-tied", "qwen2", "qwen3", "gpt2", "bloom", "bert", "t5", "t5-gated"],
)
def test_a_family_comes_back_as_transformers_has_it(name, tmp_path):
    architecture, model_class, config, entries = families()[name]
    model = random_model(model_class, config)
    expected = write_model(tmp_path / "m.gguf", architecture, model, entries)
    found = convert(tmp_path / "m.gguf", tmp_path / "out")
    assert set(found) == set(expected)
    for key, weight in expected.items():
        assert torch.equal(found[key], weight), key
    # The folder is a model: its config and its weights give the same outputs.
    extra = {"add_pooling_layer": False} if name == "bert" else {}
    again = model_class.from_pretrained(tmp_path / "out", dtype=torch.float32, **extra).eval()
    assert torch.equal(run(again), run(model))


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gpt2", "bloom", "t5-gated"])
def test_transformers_loader_agrees(name, tmp_path):
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    architecture, model_class, config, entries = families()[name]
    model = random_model(model_class, config)
    write_model(tmp_path / "m.gguf", architecture, model, entries)
    found = convert(tmp_path / "m.gguf", tmp_path / "out")
    peer = load_gguf_checkpoint(str(tmp_path / "m.gguf"), return_tensors=True, model_to_load=model)
    for key, weight in peer["tensors"].items():
        assert torch.equal(found[key], weight), key
    ours = json.loads((tmp_path / "out" / "config.json").read_text())
    # A key that only the peer's loader leaves in, and one whose value is no longer a setting of T5.
    ignored = {"feed_forward_length", "is_gated_act", "num_key_value_heads"}
    for key, value in peer["config"].items():
        if key in ignored and key not in ours:
            continue
        if key == "vocab_size" and value != config.vocab_size:
            continue  # the peer counts tokens, and this file has none
        assert ours[key] == value, key


def test_the_real_model_equals_transformers(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    paths = glob.glob(".models/smollm2/*.gguf")
    if not paths:
        pytest.skip("scripts/fetch-models was not run")
    found = convert(paths[0], tmp_path / "out")
    ours = json.loads((tmp_path / "out" / "config.json").read_text())
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**ours))
    peer = load_gguf_checkpoint(paths[0], return_tensors=True, model_to_load=model)
    assert set(found) == set(peer["tensors"]) and len(found) == 272
    for key, weight in peer["tensors"].items():
        assert_same_bits(found[key], weight.numpy(), key)
    for key in set(ours) & set(peer["config"]):
        assert ours[key] == peer["config"][key], key
    assert {"vocab_size", "rope_theta", "rms_norm_eps", "head_dim", "tie_word_embeddings",
            "eos_token_id"} <= set(ours) & set(peer["config"])  # fmt: skip
