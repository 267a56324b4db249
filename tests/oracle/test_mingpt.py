"""examples/mingpt against transformers' GPT-2: the same weights give the same tokens."""

import json
import os
import subprocess

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from transformers import GPT2Config, GPT2LMHeadModel

import tokenizer_zoo as zoo

MINGPT = os.environ.get("MINGPT", "build/examples/mingpt/mingpt")
PROMPTS = ["Hello, my name is", "def main():\n    return", "Größe über alles", "a"]
NEW_TOKENS = 20
VOCABULARY = 600
MAPS = {
    "cpu": {"": "cpu"},
    "disk": {"": "disk"},
    "mixed": {"transformer": "cpu", "transformer.h.1": "disk", "lm_head": "disk"},
}


def linear_state(model):
    """The weights with the layout of Linear in place of Conv1D's, every name with its own memory."""
    conv = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return {
        name: (value.t() if name.endswith(conv) else value).contiguous().clone()
        for name, value in model.state_dict().items()
    }


@pytest.fixture(scope="module")
def tokenizer():
    return zoo.byte_level(VOCABULARY)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(5)
    config = GPT2Config(n_layer=3, n_head=4, n_embd=48, vocab_size=VOCABULARY, n_positions=64,
                        initializer_range=0.3, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # biases and norms start as zeros and ones, which would hide a mistake
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt")
    save_torch_state_dict(linear_state(model), path, max_shard_size="60KB")
    assert len(list(path.glob("*.safetensors"))) > 3
    model.config.save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    for name, entries in MAPS.items():
        (path / f"{name}.map.json").write_text(json.dumps(entries))
    return path


def run(folder, map_name, prompt):
    result = subprocess.run(
        [MINGPT, str(folder), "--device-map", str(folder / f"{map_name}.map.json"), "--json",
         "--max-new-tokens", str(NEW_TOKENS), "--prompt", prompt],
        capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("map_name", MAPS)
def test_greedy_text_is_transformers(folder, model, tokenizer, map_name, prompt):
    ours = run(folder, map_name, prompt)
    ids = tokenizer.encode(prompt).ids
    assert ours["prompt_ids"] == ids
    with torch.no_grad():
        theirs = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)),
                                do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0,
                                return_dict_in_generate=True, output_logits=True)
    whole = theirs.sequences[0].tolist()
    assert len(set(whole[len(ids):])) > 3, "one token again and again would show little"
    assert ours["ids"] == whole[len(ids):]
    assert ours["text"] == tokenizer.decode(whole)
    expected = torch.stack([logits.max() for logits in theirs.logits])
    torch.testing.assert_close(torch.tensor(ours["logits"]), expected, rtol=1e-4, atol=1e-4)


def test_generation_ends_with_the_text(folder, model, tokenizer):
    free = run(folder, "cpu", PROMPTS[0])
    end = free["ids"][4]
    config = json.loads((folder / "config.json").read_text())
    try:
        (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": end}))
        stopped = run(folder, "cpu", PROMPTS[0])
    finally:
        (folder / "config.json").write_text(json.dumps(config))
    assert stopped["ids"] == free["ids"][: free["ids"].index(end) + 1]
