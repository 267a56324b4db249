"""Beam search beside Transformers', live: random configs, beams, length penalties and ends, set by
generation_config.json as users have it."""

import json
import random

import pytest
import torch

from test_models import CASES, build, inputs_of, runner  # noqa: F401

# Encoder and decoder, and of the others one of each kind of cache and positions.
CLASSES = {
    "t5": "T5ForConditionalGeneration", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM", "bloom": "BloomForCausalLM"}
CASE_LIST = [(family, case) for family in CLASSES
             for case in range(CASES if family == "t5" else (CASES + 4) // 5)]


def generate(model, prompt, **settings):
    """One alone: padding would count as said for a repetition penalty."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        said = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                              pad_token_id=3, **settings)[0].tolist()
    return said[1:] if model.config.is_encoder_decoder else said[len(prompt):]


def ends_of(model, prompts, rng):
    """Tokens that it says somewhere, so that some beams end."""
    said = [generate(model, prompt, num_beams=3, max_new_tokens=8, eos_token_id=None)
            for prompt in prompts[:rng.choice([1, 2, 3])]]
    return sorted({rng.choice(ids[2:]) for ids in said})


@pytest.mark.parametrize("family,case", CASE_LIST)
def test_finds_what_transformers_finds(runner, tmp_path, family, case):  # noqa: F811
    rng = random.Random(f"beams {family} {case}")
    model = build(family, CLASSES[family], case)
    model.save_pretrained(tmp_path / "model")
    ids = inputs_of(model, case)[0].tolist()
    prompts = [ids[0], ids[1][:7], ids[2][:4]]
    ends = ends_of(model, prompts, rng)
    ended = 0
    for new_tokens in (1, 4, 40, 40):
        settings = {"num_beams": rng.randint(2, 5), "eos_token_id": ends,
                    "length_penalty": rng.choice([-1.5, 0.0, 0.6, 1.0, 2.0]),
                    "early_stopping": rng.choice([True, False, "never"]),
                    "repetition_penalty": rng.choice([1.0, 1.0, 1.3])}
        theirs = [generate(model, prompt, max_new_tokens=new_tokens, **settings)
                  for prompt in prompts]
        (tmp_path / "model/generation_config.json").write_text(
            json.dumps({**settings, "pad_token_id": 3, "decoder_start_token_id": 3}))
        ours = runner(model=str(tmp_path / "model"), dtype="float32", context=96, prompts=prompts,
                      max_new_tokens=new_tokens)["generated"]
        assert ours == theirs, settings
        alone = runner(prompts=prompts[1:2], max_new_tokens=new_tokens)["generated"]
        assert alone == theirs[1:2], settings
        ended += sum(row[-1] in ends for row in ours)
    assert ended > 0
