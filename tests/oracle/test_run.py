"""`haul run` beside Transformers, live: the real models, and models made here."""

import json
import re

import pytest
import torch
import transformers

from run_haul import MODELS, SMOLLM2, answer, run
from run_models import bert, gpt2, t5

QUESTION = "What is the capital of France?"
NEW_TOKENS = 64
SENTENCES = [
    "The cat sits on the mat.", "A dog barks.", "Paris is the capital of France.", "Why?",
    "Models that are bigger than memory are streamed from disk.", "Él habla español.",
    "数学は楽しい。", "1 + 1 = 2", "The quick brown fox jumps over the lazy dog.",
    "It rained all day, and all night, and all day again.", "E = mc²", "hello",
    "HELLO", "An embedding is a vector.", "Unbelievably uncharacteristic words.",
    "New\nlines\tand tabs", "Emoji 🙂 are fine.", "- a list\n- of items",
    "She sells sea shells by the sea shore.", " ".join(["long"] * 300),
]


@pytest.fixture(scope="module")
def theirs():
    """What Transformers answers from the same GGUF file."""
    where = {"gguf_file": SMOLLM2.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2.parent, **where)
    model = transformers.AutoModelForCausalLM.from_pretrained(SMOLLM2.parent, dtype=torch.float32,
                                                              **where).eval()
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}],
                                           add_generation_prompt=True, return_tensors="pt",
                                           return_dict=True)
    with torch.no_grad():
        ids = model.generate(**prompt, do_sample=False, max_new_tokens=NEW_TOKENS)[0].tolist()
    prompt_ids = prompt["input_ids"][0].tolist()
    new = ids[len(prompt_ids):]
    return {"prompt_ids": prompt_ids, "ids": new,
            "text": tokenizer.decode(new, skip_special_tokens=True)}


def ask(*more):
    return answer(SMOLLM2, "--prompt", QUESTION, "--temperature", 0, "--max-new-tokens",
                  NEW_TOKENS, *more)


@pytest.fixture(scope="module")
def ours():
    return ask()


def test_smollm2_answers_with_the_ids_of_transformers(ours, theirs):
    for key, value in theirs.items():
        assert ours[key] == value
    assert "Paris" in ours["text"]
    assert len(ours["ids"]) < NEW_TOKENS  # it stopped by itself
    assert ours["stats"]["load_s"] > 0 and ours["stats"]["tokens_per_s"] > 0
    assert ours["stats"]["peak"].keys() == ours["stats"]["planned"].keys() == {"RAM"}


def on_disk(ours):
    return [name for name, device in ours["device_map"].items() if device == "disk"]


def test_smollm2_says_the_same_with_a_third_of_it_on_disk(ours, tmp_path):
    weights = ours["stats"]["planned"]["RAM"]
    _, _, err = run(SMOLLM2, "--prompt", QUESTION, "--max-new-tokens", 1)
    needed = re.search(r"RAM .* ([\d.]+) MB of", err)
    budget = int(float(needed.group(1)) * 2 ** 20) - weights // 3
    again = ask("--max-memory", f"cpu={budget}", "--offload-folder", tmp_path)
    assert again["ids"] == ours["ids"]
    assert on_disk(again)
    assert again["stats"]["bytes_moved"] > weights // 3
    assert again["stats"]["peak"]["RAM"] <= budget


def test_smollm2_says_the_same_from_disk_alone(ours, tmp_path):
    (tmp_path / "map.json").write_text('{"": "disk"}')
    again = ask("--device-map", tmp_path / "map.json", "--offload-folder", tmp_path / "offload")
    assert again["ids"] == ours["ids"]
    assert again["device_map"] == {"": "disk"}


def test_minilm_embeds_as_transformers_does():
    folder = MODELS / "minilm"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    for sentence in SENTENCES:
        inputs = tokenizer(sentence, truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state[0]
        theirs = torch.nn.functional.normalize(hidden.mean(0), dim=0)
        ours = torch.tensor(answer(folder, "--prompt", sentence)["embedding"])
        assert (ours - theirs).abs().max() <= 1e-5, sentence


def test_minilm_says_what_it_assumes_and_prints_the_vector(tmp_path):
    code, out, err = run(MODELS / "minilm", "--prompt", SENTENCES[0])
    assert code == 0
    as_json = answer(MODELS / "minilm", text=SENTENCES[0] + "\n")["embedding"]
    assert [float(number) for number in out.split()] == pytest.approx(as_json, abs=1e-7)
    assert "1_Pooling/config.json: the mean of all tokens is taken" in err


def hidden_states(model, tokenizer, text):
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]


POOLINGS = {
    "cls_token": lambda h: h[0],
    "max_tokens": lambda h: h.max(0).values,
    "mean_tokens": lambda h: h.mean(0),
    "mean_sqrt_len_tokens": lambda h: h.sum(0) / len(h) ** 0.5,
    "weightedmean_tokens": lambda h: (h * torch.arange(1.0, len(h) + 1)[:, None]).sum(0)
                                     / sum(range(1, len(h) + 1)),
    "lasttoken": lambda h: h[-1],
}


@pytest.mark.parametrize("modes,normalised", [
    (["cls_token"], True), (["max_tokens"], False), (["mean_sqrt_len_tokens"], False),
    (["weightedmean_tokens"], True), (["lasttoken"], True), (["cls_token", "mean_tokens"], True)])
def test_pools_as_the_files_say(tmp_path, modes, normalised):
    model, tokenizer = bert(tmp_path, transformers.BertModel)
    steps = ["Transformer", "Pooling"] + ["Normalize"] * normalised
    (tmp_path / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": f"{i}_{step}" if i else "",
          "type": f"sentence_transformers.models.{step}"} for i, step in enumerate(steps)]))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 32,
         **{f"pooling_mode_{mode}": mode in modes for mode in POOLINGS}}))
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(
        {"prompts": {"query": "the old "}, "default_prompt_name": "query"}))
    hidden = hidden_states(model, tokenizer, "the old dog sees a bird")
    theirs = torch.cat([POOLINGS[mode](hidden) for mode in modes])
    if normalised:
        theirs = torch.nn.functional.normalize(theirs, dim=0)
    ours = torch.tensor(answer(tmp_path, "--prompt", "dog sees a bird")["embedding"])
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_t5_in_float16_placed_by_auto_says_what_transformers_says(tmp_path):
    _, tokenizer = t5(tmp_path, d_model=64, d_kv=16, d_ff=128)
    half = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path, dtype=torch.float16, device_map="auto").eval()
    compared = 0
    for text in ("what is the capital of France", "the old dog sees a small bird and runs",
                 "a bird", "who runs to the river"):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            said = half.generate(**inputs, do_sample=False, max_new_tokens=32, output_scores=True,
                                 return_dict_in_generate=True)
        theirs = said.sequences[0, 1:].tolist()
        ours = answer(tmp_path, "--prompt", text, "--dtype", "float16", "--device-map", "auto",
                      "--max-new-tokens", 32)
        assert ours["prompt_ids"] == inputs["input_ids"][0].tolist()
        assert ours["text"] == tokenizer.decode(ours["ids"], skip_special_tokens=True)
        # As far as half precision decides: up to two words that are as likely as each other.
        for step, scores in enumerate(said.scores):
            best, second = scores[0].float().topk(2).values
            if best - second < 16 * 2.0 ** -11 * scores[0].float().abs().max():
                break
            assert ours["ids"][step] == theirs[step], step
            compared += 1
    assert compared >= 8


@pytest.mark.parametrize("problem,labels", [
    (None, 3), ("single_label_classification", 3), ("multi_label_classification", 4),
    ("regression", 1), (None, 1)])
def test_gpt2_classifies_as_transformers_does(tmp_path, problem, labels):
    names = {i: f"topic {i}" for i in range(labels)}
    model, tokenizer = gpt2(tmp_path, transformers.GPT2ForSequenceClassification,
                            id2label=names, problem_type=problem)
    judge = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer,
                                  top_k=None)
    for text in ("the dog likes the red house", "a king never sleeps"):
        theirs = judge(text)[0]
        ours = answer(tmp_path, "--prompt", text)["labels"]
        assert [item["label"] for item in ours] == [item["label"] for item in theirs]
        assert [item["score"] for item in ours] == pytest.approx(
            [item["score"] for item in theirs], abs=1e-6)


def test_labels_get_the_names_that_are_asked_for(tmp_path):
    gpt2(tmp_path, transformers.GPT2ForSequenceClassification, num_labels=3)
    plain = answer(tmp_path, "--prompt", "a good dog")["labels"]
    named = answer(tmp_path, "--prompt", "a good dog", "--labels", "A,B,C")["labels"]
    assert [item["label"] for item in named] == ["ABC"[int(item["label"][-1])] for item in plain]
    _, out, _ = run(tmp_path, "--prompt", "a good dog", "--labels", "A,B,C")
    assert out.splitlines() == [f"{item['score']:.4f}  {item['label']}" for item in named]
    code, _, err = run(tmp_path, "--prompt", "a good dog", "--labels", "A,B")
    assert code == 2 and "--labels names 2 labels, and the model has 3" in err


def test_bert_fills_masks_as_transformers_does(tmp_path):
    model, tokenizer = bert(tmp_path, transformers.BertForMaskedLM)
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    for text in ("the [MASK] sees a bird", "the [MASK] likes a [MASK] house"):
        theirs = fill(text)
        theirs = theirs if isinstance(theirs[0], list) else [theirs]
        ours = answer(tmp_path, "--prompt", text)["masks"]
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs):
            assert [word["word"] for word in mine] == [word["token_str"] for word in other]
            assert [word["id"] for word in mine] == [word["token"] for word in other]
            assert [word["score"] for word in mine] == pytest.approx(
                [word["score"] for word in other], abs=1e-6)
    code, _, err = run(tmp_path, "--prompt", "the dog")
    assert code == 2 and "no mask" in err and "[MASK]" in err


def test_any_model_embeds_when_asked(tmp_path):
    model, tokenizer = bert(tmp_path, transformers.BertForMaskedLM)
    hidden = hidden_states(model.bert, tokenizer, "a small bird")
    ours = answer(tmp_path, "--prompt", "a small bird", "--task", "embed")["embedding"]
    assert torch.allclose(torch.tensor(ours), hidden.mean(0), atol=1e-5)


def test_a_task_that_the_model_cannot_do_is_refused(tmp_path):
    gpt2(tmp_path, transformers.GPT2LMHeadModel)
    for task in ("classify", "fill-mask"):
        code, out, err = run(tmp_path, "--prompt", "a dog", "--task", task)
        assert code == 1 and not out and "GPT2LMHeadModel" in err
    code, _, err = run(tmp_path, "--prompt", "a dog", "--task", "sing")
    assert code == 2 and "generate, embed, classify and fill-mask" in err
