"""Tokenizers inside GGUF files against the libraries that own their models.

Each is trained here, written into a small file as converters write it, and read by `haul tokenize`:
sentencepiece's BPE (kind llama) and Unigram (kind t5), and WordPiece (kind bert).
"""

import json
import os
import subprocess

import gguf
import pytest
import sentencepiece
from tokenizers import Tokenizer

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


def write(path, kind, tokens, types, scores=None, **fields):
    """A file without tensors: a tokenizer and what a converter says of it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores is not None:
        writer.add_token_scores(scores)
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_sentencepiece(path, kind, model, **fields):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    tokens, scores, types = [], [], []
    for i in range(processor.vocab_size()):
        tokens.append(processor.id_to_piece(i).encode())
        scores.append(processor.get_score(i))
        kinds = ((processor.is_unknown, gguf.TokenType.UNKNOWN), (processor.is_control, gguf.TokenType.CONTROL),
                 (processor.is_unused, gguf.TokenType.UNUSED), (processor.is_byte, gguf.TokenType.BYTE))
        types.append(next((t for holds, t in kinds if holds(i)), gguf.TokenType.NORMAL))
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
