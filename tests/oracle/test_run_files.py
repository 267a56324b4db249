"""`haul run` with many prompts in a file: the same answers as one by one, in their order."""

import json
import subprocess

import pytest
import transformers

from run_haul import HAUL, answer, run
from run_models import bert, gpt2, t5

TEXTS = ["the old dog", "a small red bird sees the river and the mountain", "what is",
         "one cat likes a good house", "a king", "the queen never sleeps under the mountain"]
FLAGS = ("--max-new-tokens", 12, "--dtype", "float32")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    gpt2(folder, transformers.GPT2LMHeadModel)
    return folder


@pytest.fixture(scope="module")
def alone(model):
    return [answer(model, "--prompt", text, *FLAGS) for text in TEXTS]


def lines(*arguments, text=None):
    code, out, err = run(*arguments, "--json", text=text)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def same(many, alone):
    for key in ("text", "ids", "prompt_ids", "device_map"):
        assert [one[key] for one in many] == [one[key] for one in alone], key


@pytest.mark.parametrize("batch", [1, 4])
def test_a_batch_gives_what_each_gives_alone(model, alone, tmp_path, batch):
    (tmp_path / "a.jsonl").write_text("".join(
        json.dumps(text if i % 2 else {"prompt": text, "id": i}) + "\n"
        for i, text in enumerate(TEXTS)))
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS) + "\r\n")
    flags = (model, *FLAGS, "--batch", batch)
    same(lines(*flags, "--file", tmp_path / "a.jsonl"), alone)
    same(lines(*flags, "--file", tmp_path / "a.txt", "--lines"), alone)
    same(lines(*flags, "--lines", text="\n".join(TEXTS)), alone)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"ids": one["prompt_ids"]}) + "\n" for one in alone))
    same(lines(*flags, "--file", tmp_path / "b.jsonl"), alone)
    code, out, err = run(*flags, "--file", tmp_path / "a.jsonl")
    assert code == 0
    assert out == "\n".join(one["text"] + "\n" for one in alone)
    assert f"{len(TEXTS)} of {len(TEXTS)} prompts in" in err and "tokens/s" in err


def test_a_t5_answers_many_with_beams_as_one_by_one(tmp_path):
    model, tokenizer = t5(tmp_path, d_model=32, d_kv=8, d_ff=64)
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    many = lines(tmp_path, "--file", tmp_path / "a.txt", "--lines", "--batch", 6, "--num-beams", 3,
                 *FLAGS)
    for text, ours in zip(TEXTS, many):
        inputs = tokenizer(text, return_tensors="pt")
        theirs = model.generate(**inputs, num_beams=3, max_new_tokens=12, do_sample=False)
        assert ours["ids"] == theirs[0, 1:].tolist()
        assert ours["text"] == tokenizer.decode(ours["ids"], skip_special_tokens=True)
    plain = run(tmp_path, "--prompt", TEXTS[1], "--num-beams", 3, *FLAGS)
    assert plain[1] == many[1]["text"] + "\n"


def test_a_file_without_lines_is_one_prompt(model, tmp_path):
    (tmp_path / "a.txt").write_text("the old\ndog\n")
    whole = answer(model, "--file", tmp_path / "a.txt", *FLAGS)
    assert whole["prompt_ids"] == answer(model, "--prompt", "the old\ndog", *FLAGS)["prompt_ids"]
    (tmp_path / "a.jsonl").write_text('"the old\\ndog"\n')
    same(lines(model, "--file", tmp_path / "a.jsonl", *FLAGS), [whole])


def test_messages_go_through_the_chat_template(tmp_path):
    _, tokenizer = gpt2(tmp_path, transformers.GPT2LMHeadModel)
    tokenizer.chat_template = ("{% for m in messages %}{{ m.role }} says {{ m.content }} {% endfor %}"
                               "{% if add_generation_prompt %}king says{% endif %}")
    tokenizer.save_pretrained(tmp_path)
    chat = [{"role": "dog", "content": "the house"}, {"role": "cat", "content": "a river"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": chat}) + '\n"the house"\n')
    ours = lines(tmp_path, "--file", tmp_path / "a.jsonl", "--system", "never", *FLAGS)
    for one, messages in zip(ours, (chat, [{"role": "system", "content": "never"},
                                           {"role": "user", "content": "the house"}])):
        theirs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert one["prompt_ids"] == tokenizer(theirs, add_special_tokens=False)["input_ids"]


    # Bytes that are no text do not end a chat.
    done = subprocess.run([HAUL, "run", tmp_path, "--chat", *map(str, FLAGS)],
                          input=b"\xff dog\nthe house\n", capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2


def test_other_tasks_take_files_too(tmp_path):
    bert(tmp_path, transformers.BertModel)
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    many = lines(tmp_path, "--file", tmp_path / "a.txt", "--lines")
    assert many == [answer(tmp_path, "--prompt", text) for text in TEXTS]
    _, out, err = run(tmp_path, "--file", tmp_path / "a.txt", "--lines")
    assert len(out.splitlines()) == len(TEXTS)
    assert err.count("answer") == 1


@pytest.mark.parametrize("line,words", [
    ("{", "JSON"), ("3", "neither a string nor an object"), ("{}", "'prompt', 'messages' and 'ids'"),
    ('{"prompt": 3}', "'prompt' is not a text"), ('{"messages": []}', "'messages'"),
    ('{"ids": []}', "'ids' is not a list"), ('{"ids": [1, -1]}', "no token"), ('{"ids": [4294967296]}', "no token"),
    ('{"ids": [99999]}', "99999"),
    ('""', "no tokens"), (json.dumps("dog " * 70), "context 64")])
def test_errors_name_the_file_and_the_line(model, tmp_path, line, words):
    (tmp_path / "a.jsonl").write_text(f'"a dog"\n\n{line}\n"a cat"\n')
    code, out, err = run(model, "--file", tmp_path / "a.jsonl")
    assert code in (1, 2) and not out
    error = err[err.index("haul: error: "):]
    assert f"{tmp_path}/a.jsonl:3: " in error and words in error, error


def test_a_file_of_nothing(model, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n\n")
    code, _, err = run(model, "--file", tmp_path / "a.jsonl")
    assert code == 2 and "a.jsonl: has no prompts" in err
    code, _, err = run(model, "--prompt", "a", "--lines")
    assert code == 2 and "--lines" in err
    code, _, err = run(model, "--prompt", "a", "--batch", 0)
    assert code == 2 and "--batch" in err
    code, _, err = run(model, "--prompt", "a", "--num-beams", 0)
    assert code == 2 and "num_beams" in err
