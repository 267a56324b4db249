"""Tokenizers inside GGUF files against the libraries that own their models.

Each is trained here, written into a small file as converters write it, and read by `haul tokenize`:
byte-level BPE (kind gpt2), sentencepiece's BPE (kind llama) and Unigram (kind t5), and WordPiece
(kind bert). `haul convert` then makes a folder of it, in which the tokenizers library, Transformers
and `haul tokenize` find the same ids, tokens and text.
"""

import glob
import json
import os
import subprocess

import gguf
import numpy
import pytest
import sentencepiece
from tokenizers import AddedToken, Tokenizer, processors

import tokenizer_texts as texts
import tokenizer_zoo as zoo

HAUL = os.environ.get("HAUL", "build/haul")
LINES = int(os.environ.get("HAUL_TOKENIZER_LINES", "1500"))


def haul_ids(path, lines, folder, *flags):
    source = folder / "lines.txt"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    done = subprocess.run([HAUL, "tokenize", path, "--file", source, "--lines", *flags], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert len(rows) == len(lines)
    return rows


def compare(path, lines, expected, folder, *flags):
    for line, ours in zip(lines, haul_ids(path, lines, folder, *flags)):
        theirs = expected(line.decode("utf-8", "replace"))
        assert ours == theirs, f"{line!r}\nours   {ours}\ntheirs {theirs}"


def compare_text(path, text, expected, folder):
    source = folder / "document.txt"
    source.write_bytes(text.encode())
    done = subprocess.run([HAUL, "tokenize", path, "--file", source, "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout)["ids"] == expected(text)


def write(path, kind, tokens, types, scores=None, pre="default", merges=None, **fields):
    """A tokenizer, what a converter says of it, and a tensor of a model that haul does not map."""
    writer = gguf.GGUFWriter(path, "gptj")
    writer.add_context_length(512)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores is not None:
        writer.add_token_scores(scores)
    if merges is not None:
        writer.add_token_merges(merges)
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_tensor("blk.0.x", numpy.zeros(4, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(*arguments):
    done = subprocess.run([HAUL, *arguments], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def convert(path, folder, model_type):
    """The folder, with the config that a model of a family that haul maps would have there."""
    out = folder / "out"
    run("convert", path, out)
    assert {"tokenizer.json", "tokenizer_config.json", "model.safetensors"} <= set(os.listdir(out))
    if not (out / "config.json").exists():
        (out / "config.json").write_text(json.dumps({"model_type": model_type}))
    return out


def haul_details(path, lines, folder):
    source = folder / "details.txt"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    return [json.loads(row) for row in run("tokenize", path, "--file", source, "--lines", "--offsets").splitlines()]


def compare_folder(path, out, lines, folder, same=lambda text: True):
    """All readers of the folder, and the file where `same` says that its own library agrees."""
    from transformers import AutoTokenizer

    fast = Tokenizer.from_file(str(out / "tokenizer.json"))
    auto = AutoTokenizer.from_pretrained(out)
    assert auto.model_max_length == (8192 if "smollm2" in str(path) else 512)
    of_file = haul_details(path, lines, folder)
    of_folder = haul_details(out, lines, folder)
    compared = 0
    for i, line in enumerate(lines):
        text = line.decode("utf-8", "replace")
        theirs = fast.encode(text)
        of_auto = auto(text)
        assert of_folder[i]["ids"] == theirs.ids == of_auto["input_ids"], line
        assert of_folder[i]["tokens"] == theirs.tokens == of_auto.tokens(), line
        if same(text):
            compared += 1
            assert of_file[i]["ids"] == theirs.ids, line
            assert of_file[i]["tokens"] == theirs.tokens, line
        if i < 12:
            ids = ",".join(map(str, theirs.ids))
            for flags, skips in (((), False), (("--skip-special-tokens",), True)):
                expected = fast.decode(theirs.ids, skip_special_tokens=skips)
                assert auto.decode(theirs.ids, skip_special_tokens=skips) == expected
                for source in (path, out):
                    assert run("tokenize", source, "--decode", ids, *flags).decode() == expected + "\n", line
    pair = fast.encode(lines[0].decode(), lines[1].decode())
    for source in (path, out):
        ours = json.loads(run("tokenize", source, "--text", lines[0], "--pair", lines[1], "--json"))
        assert (ours["ids"], ours["type_ids"]) == (pair.ids, pair.type_ids)
    assert compared > 0.8 * len(lines)
    return fast, auto


def write_sentencepiece(path, kind, model, users=(), **fields):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    tokens, scores, types = [], [], []
    for i in range(processor.vocab_size()):
        tokens.append(processor.id_to_piece(i).encode())
        scores.append(processor.get_score(i))
        kinds = ((processor.is_unknown, gguf.TokenType.UNKNOWN), (processor.is_control, gguf.TokenType.CONTROL),
                 (processor.is_unused, gguf.TokenType.UNUSED), (processor.is_byte, gguf.TokenType.BYTE))
        types.append(next((t for holds, t in kinds if holds(i)), gguf.TokenType.NORMAL))
        if processor.id_to_piece(i) in users:  # of which converters write the marks as spaces
            tokens[i], types[i] = processor.id_to_piece(i).replace("▁", " ").encode(), gguf.TokenType.USER_DEFINED
    write(path, kind, tokens, types, scores, bos_token_id=processor.bos_id(), eos_token_id=processor.eos_id(),
          unk_token_id=processor.unk_id(), **fields)
    return processor


def plain_lines(seed):
    # Text that spells a control piece is that piece here, and sentencepiece's text ends at a zero.
    return [line for line in texts.lines(seed, LINES) if b"s>" not in line and b"<unk>" not in line and b"\0" not in line]


@pytest.mark.parametrize("prefix", [True, False], ids=["prefix", "bare"])
def test_llama(prefix, tmp_path):
    model = zoo.train_sentencepiece(tmp_path, "bpe", rule="identity", byte_fallback=True,
                                    remove_extra_whitespaces=False, add_dummy_prefix=prefix)
    path = tmp_path / "llama.gguf"
    processor = write_sentencepiece(path, "llama", model, add_space_prefix=prefix, add_bos_token=True,
                                    add_eos_token=False)
    lines = plain_lines(31)
    compare(path, lines, lambda text: [processor.bos_id()] + processor.encode(text), tmp_path)
    compare(path, lines[:300], processor.encode, tmp_path, "--no-special-tokens")
    compare_text(path, texts.source_code(100_000), lambda text: [processor.bos_id()] + processor.encode(text),
                 tmp_path)
    _, auto = compare_folder(path, convert(path, tmp_path, "llama"), texts.lines(34, 300), tmp_path)
    assert (auto.bos_token, auto.eos_token, auto.unk_token) == ("<s>", "</s>", "<unk>")
    assert auto.model_input_names == ["input_ids", "attention_mask"]


def test_llama_with_tokens_of_its_user(tmp_path):
    users = ["<b>", "▁▁", "▁▁▁", "▁▁▁▁"]
    model = zoo.train_sentencepiece(tmp_path, "bpe", rule="identity", byte_fallback=True, add_dummy_prefix=False,
                                    remove_extra_whitespaces=False, user_defined_symbols=users)
    path = tmp_path / "llama.gguf"
    processor = write_sentencepiece(path, "llama", model, users, add_space_prefix=False)
    lines = [b"a<b>c  d <b> e", b"x<b>", b"def f():\t  return   1", b"    the  fox   the"]
    compare(path, lines, lambda text: [processor.bos_id()] + processor.encode(text), tmp_path)
    compare_folder(path, convert(path, tmp_path, "llama"), lines + texts.lines(35, 200), tmp_path)


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc_cf", "identity"])
def test_t5(rule, tmp_path):
    model = zoo.train_sentencepiece(tmp_path, "unigram", rule=rule)
    fields = {} if rule == "identity" else {"precompiled_charsmap": zoo.charsmap(model)}
    path = tmp_path / "t5.gguf"
    processor = write_sentencepiece(path, "t5", model, add_space_prefix=True, remove_extra_whitespaces=True,
                                    add_bos_token=False, add_eos_token=True, **fields)
    lines = plain_lines(32)
    compare(path, lines, lambda text: processor.encode(text) + [processor.eos_id()], tmp_path)
    compare(path, lines[:300], processor.encode, tmp_path, "--no-special-tokens")
    compare_text(path, texts.source_code(100_000), lambda text: processor.encode(text) + [processor.eos_id()],
                 tmp_path)
    # tokenizer.json has graphemes normalized at once, and characters are sentencepiece's way.
    out = convert(path, tmp_path, "t5")
    normalizer = Tokenizer.from_file(str(out / "tokenizer.json")).normalizer
    def same(text):
        return normalizer.normalize_str(text).removeprefix("▁").replace("▁", " ") == \
            processor.normalize(text).removeprefix("▁").replace("▁", " ")
    _, auto = compare_folder(path, out, plain_lines(36)[:300], tmp_path, same)
    assert (auto.eos_token, auto.unk_token) == ("</s>", "<unk>")


def test_bert(tmp_path):
    trained = zoo.word_piece()
    state = json.loads(trained.to_str())
    state["model"]["max_input_chars_per_word"] = 100
    tokenizer = Tokenizer.from_str(json.dumps(state))
    # Converters write a mark before words and leave the "##" of what continues one out.
    tokens, types = [], []
    for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1]):
        special = token.startswith("[") and token.endswith("]") and len(token) > 2
        types.append(gguf.TokenType.CONTROL if special else gguf.TokenType.NORMAL)
        if not special:
            token = token[2:] if token.startswith("##") else "▁" + token
        tokens.append(token.encode())
    path = tmp_path / "bert.gguf"
    ids = {name: tokenizer.token_to_id(token) for name, token in
           (("cls", "[CLS]"), ("sep", "[SEP]"), ("unk", "[UNK]"), ("pad", "[PAD]"), ("mask", "[MASK]"))}
    write(path, "bert", tokens, types, bos_token_id=ids["cls"], sep_token_id=ids["sep"], unk_token_id=ids["unk"],
          pad_token_id=ids["pad"], mask_token_id=ids["mask"])
    lines = texts.lines(33, LINES)
    compare(path, lines, lambda text: tokenizer.encode(text).ids, tmp_path)
    compare(path, lines[:300], lambda text: tokenizer.encode(text, add_special_tokens=False).ids, tmp_path,
            "--no-special-tokens")
    compare_text(path, texts.source_code(100_000), lambda text: tokenizer.encode(text).ids, tmp_path)
    _, auto = compare_folder(path, convert(path, tmp_path, "bert"), texts.lines(37, 300), tmp_path)
    assert (auto.cls_token, auto.sep_token, auto.pad_token, auto.mask_token, auto.unk_token) == \
        ("[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]")
    assert "token_type_ids" in auto.model_input_names
    assert not (tmp_path / "out" / "generation_config.json").exists()


FAMILIES = {  # how each splits, the names that files have for it, and a model of this kind
    "gpt2": ({}, "default gpt-2 phi-2 mpt olmo jina-es jina-de jina-v1-en roberta-bpe gigachat", "gpt2"),
    "digits": ({"digits": True}, "smollm starcoder refact command-r codeshell exaone", "llama"),
    "llama3": ({"split": zoo.CL100K, "ignore_merges": True}, "llama-bpe llama3 llama-v3 falcon3 dbrx", "llama"),
    "qwen2": ({"split": zoo.QWEN2, "normalizer": zoo.normalizers.NFC()}, "qwen2", "qwen2"),
    "gpt-4o": ({"split": zoo.O200K}, "gpt-4o llama4", "llama"),
}
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def chat(path, messages, folder):
    source = folder / "chat.json"
    source.write_text(json.dumps(messages))
    return json.loads(run("tokenize", path, "--chat", source, "--add-generation-prompt", "--json"))["ids"]


@pytest.mark.parametrize("family", FAMILIES)
def test_gpt2(family, tmp_path):
    options, names, model_type = FAMILIES[family]
    original = zoo.byte_level(1500, **options)
    original.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|begin|>"])
    original.add_tokens([AddedToken("<tool>", normalized=False)])
    state = json.loads(original.to_str())
    tokens = [original.id_to_token(i) for i in range(original.get_vocab_size())]
    types = [gguf.TokenType.NORMAL] * len(tokens)
    for token in state["added_tokens"]:
        types[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    ids = {token: original.token_to_id(token) for token in ("<|begin|>", "<|im_end|>", "<|endoftext|>")}
    original.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1", special_tokens=[("<|begin|>", ids["<|begin|>"])])
    lines = texts.lines(38, 300) + [b"<|im_start|>user <tool>{}<|im_end|>"]
    expected = [original.encode(line.decode("utf-8", "replace")) for line in lines]
    for name in names.split():
        path = tmp_path / f"{name}.gguf"
        write(path, "gpt2", tokens, types, pre=name, merges=[" ".join(pair) for pair in state["model"]["merges"]],
              bos_token_id=ids["<|begin|>"], eos_token_id=ids["<|endoftext|>"], eot_token_id=ids["<|im_end|>"],
              pad_token_id=ids["<|endoftext|>"], add_bos_token=True, chat_template=TEMPLATE)
        assert haul_ids(path, lines, tmp_path) == [encoding.ids for encoding in expected]
    out = convert(path, tmp_path, model_type)
    _, auto = compare_folder(path, out, lines, tmp_path)
    messages = [{"role": "user", "content": " Is it 12:45? "}, {"role": "assistant", "content": "naïve — “no”"}]
    theirs = auto.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert chat(path, messages, tmp_path) == chat(out, messages, tmp_path) == theirs
    assert json.loads((out / "generation_config.json").read_text()) == {
        "bos_token_id": ids["<|begin|>"], "eos_token_id": [ids["<|endoftext|>"], ids["<|im_end|>"]],
        "pad_token_id": ids["<|endoftext|>"]}


def test_the_real_model(tmp_path):
    from transformers import GenerationConfig

    paths = glob.glob(".models/smollm2/*.gguf")
    if not paths:
        pytest.skip("scripts/fetch-models was not run")
    out = convert(paths[0], tmp_path, None)
    _, auto = compare_folder(paths[0], out, texts.lines(39, LINES), tmp_path)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    theirs = auto.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert chat(paths[0], messages, tmp_path) == chat(out, messages, tmp_path) == theirs
    assert auto.decode(theirs).endswith("France?<|im_end|>\n<|im_start|>assistant\n")
    generation = GenerationConfig.from_pretrained(out)
    assert (generation.bos_token_id, generation.eos_token_id, generation.pad_token_id) == (1, 2, 2)
