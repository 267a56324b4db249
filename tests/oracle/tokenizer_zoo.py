"""Tokenizers of every kind, trained or built here with the peer's own library."""

import gzip
import json

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

import tokenizer_texts as texts

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CL100K.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def corpus():
    return texts.SENTENCES * 3 + texts.source_code(60_000).split("\n")


def byte_level(size, split=None, normalizer=None, add_prefix_space=False, digits=False, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.normalizer = normalizer
    steps = []
    if digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if split:
        steps.append(pre_tokenizers.Split(Regex(split), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=not split))
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=add_prefix_space)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def clip(vocabulary=None):
    """CLIP's stages around a small model, or around the real vocabulary."""
    suffix = "</w>"
    if vocabulary:
        merges = gzip.open(vocabulary).read().decode().split("\n")[1 : 49152 - 256 - 2 + 1]
        merges = [tuple(m.split()) for m in merges]
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=byte_order)
        tokens = alphabet + [c + suffix for c in alphabet] + ["".join(m) for m in merges]
        tokens += ["<|startoftext|>", "<|endoftext|>"]
        model = models.BPE({t: i for i, t in enumerate(tokens)}, merges, unk_token="<|endoftext|>",
                           end_of_word_suffix=suffix)
        tokenizer = Tokenizer(model)
        tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    else:
        tokenizer = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix=suffix))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    if not vocabulary:
        tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
            vocab_size=1200, special_tokens=["<|startoftext|>", "<|endoftext|>"],
            end_of_word_suffix=suffix, show_progress=False))
    ids = [(t, tokenizer.token_to_id(t)) for t in ("<|endoftext|>", "<|startoftext|>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ids, add_prefix_space=False,
                                                            trim_offsets=False)
    return tokenizer


def byte_order(character):
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in printable]
    point = ord(character)
    return printable.index(point) if point in printable else len(printable) + others.index(others[point - 256])


def word_piece(size=900):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=50))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]")))
    return tokenizer


def unigram(normalizer, pre_tokenizer, size=900, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
        show_progress=False))
    if byte_fallback:
        state = json.loads(tokenizer.to_str())
        state["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
        state["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1",
        special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return tokenizer


def llama2(fuse_unk=True, metaspace=None):
    """BPE over the whole text, with bytes for what the vocabulary lacks."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)],
        limit_alphabet=300, show_progress=False))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=metaspace)
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
             decoders.Strip(" ", 1, 0)])
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["content"] in ("<unk>", "<s>", "</s>")
    state["added_tokens"] = [t for t in state["added_tokens"] if t["special"]]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def subword_bpe(**options):
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", **options))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=900, special_tokens=["[UNK]"], show_progress=False, limit_alphabet=200, **options))
    tokenizer.decoder = decoders.BPEDecoder(suffix=options.get("end_of_word_suffix", "</w>"))
    return tokenizer


def bytes_of(normalizer=None, pre_tokenizer=None):
    """Ids that are the bytes of the normalized text."""
    vocabulary = {f"<0x{b:02X}>": b for b in range(256)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteFallback()
    return tokenizer


def pieces_of(pre_tokenizer):
    """One token for each piece."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "the": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(corpus(), trainers.WordLevelTrainer(
        vocab_size=500, special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


def train_sentencepiece(folder, kind, rule="nmt_nfkc", **options):
    path = folder / "corpus.txt"
    path.write_text("\n".join(s for s in corpus() if s.strip() and "\0" not in s))
    prefix = folder / f"{kind}-{rule}-{len(options)}"
    sentencepiece.SentencePieceTrainer.train(
        input=str(path), model_prefix=str(prefix), model_type=kind, vocab_size=1000,
        character_coverage=0.98, normalization_rule_name=rule, hard_vocab_limit=False,
        minloglevel=5, **options)
    return prefix.with_suffix(".model")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def proto_field(data, wanted):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 2:
            size, at = varint(data, at)
            if key >> 3 == wanted:
                return data[at : at + size]
            at += size
        elif key & 7 == 0:
            _, at = varint(data, at)
        else:
            at += 4 if key & 7 == 5 else 8
    raise ValueError("no such field")


def charsmap(model_file):
    return proto_field(proto_field(model_file.read_bytes(), 3), 2)


def add_flagged_tokens(tokenizer):
    tokenizer.add_tokens([
        AddedToken("the", single_word=True, normalized=True),
        AddedToken("fox", normalized=False),
        AddedToken("DOG", normalized=True),
        AddedToken("<l>", lstrip=True, normalized=False),
        AddedToken("<r>", rstrip=True, normalized=False),
        AddedToken("<b>", lstrip=True, rstrip=True, normalized=True),
        AddedToken("1", single_word=True, normalized=False),
        AddedToken("é", normalized=True),
    ])
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("[MASK]", lstrip=True),
                                  AddedToken("<|endoftext|>")])
    return tokenizer


FLAGGED_TEXTS = [
    "the fox the lazy DOG dog theatre  the", "a <l> b  <l>c <r>  d<r>e  <b>  f <b>", "1 21 1a 1 é É e\u0301",
    "<s>the<s> the [MASK] mask  [MASK]x <|endoftext|>\u00a0<l>\u3000<b>", "fox fox<l><r><b> <r> <l> ",
    "  the  ", "the", "<l>", " <l> ", "<b><b> <b>", "naïve 中the文 中 the 文 the.", "DOGdog DoG the_fox the-fox",
]


def normalizer_zoo(charsmap_bytes):
    n = normalizers
    return {
        "nfc": n.NFC(), "nfd": n.NFD(), "nfkc": n.NFKC(), "nfkd": n.NFKD(), "lowercase": n.Lowercase(),
        "strip": n.Strip(), "strip-left": n.Strip(right=False), "strip-right": n.Strip(left=False),
        "strip-accents": n.StripAccents(), "nmt": n.Nmt(), "byte-level": n.ByteLevel(),
        "prepend": n.Prepend("▁"), "replace": n.Replace("a", "<xy>"), "replace-remove": n.Replace("'", ""),
        "replace-regex": n.Replace(Regex(r"\s+|[0-9]"), "▁"), "replace-empty": n.Replace(Regex("(?=b)"), "-"),
        "bert": n.BertNormalizer(), "bert-cased": n.BertNormalizer(lowercase=False),
        "bert-bare": n.BertNormalizer(False, False, True, False), "precompiled": n.Precompiled(charsmap_bytes),
        "sequence": n.Sequence([n.NFKD(), n.StripAccents(), n.Lowercase(), n.Strip(), n.Prepend("_")]),
        "albert": n.Sequence([n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(),
                              n.Lowercase(), n.Precompiled(charsmap_bytes), n.Replace(Regex(" {2,}"), " ")]),
    }


def pre_tokenizer_zoo():
    p = pre_tokenizers
    zoo = {
        "bert": p.BertPreTokenizer(), "byte-level": p.ByteLevel(), "byte-level-plain": p.ByteLevel(False),
        "byte-level-whole": p.ByteLevel(True, use_regex=False), "delimiter": p.CharDelimiterSplit("e"),
        "digits": p.Digits(), "digits-each": p.Digits(True), "fixed": p.FixedLength(3),
        "metaspace": p.Metaspace(), "metaspace-first": p.Metaspace(prepend_scheme="first"),
        "metaspace-never": p.Metaspace(replacement="_", prepend_scheme="never", split=False),
        "whitespace": p.Whitespace(), "whitespace-split": p.WhitespaceSplit(),
        "scripts": p.UnicodeScripts(), "sequence": p.Sequence([p.WhitespaceSplit(), p.Metaspace()]),
        "sequence-digits": p.Sequence([p.Digits(True), p.Punctuation(), p.ByteLevel(False)]),
    }
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        zoo[f"punctuation-{behavior}"] = p.Punctuation(behavior)
        zoo[f"split-{behavior}"] = p.Split(Regex(r"[aeiou]|\s"), behavior)
        zoo[f"split-invert-{behavior}"] = p.Split(Regex(r"\p{L}+|\d|(?=x)"), behavior, invert=True)
        zoo[f"split-literal-{behavior}"] = p.Split("th", behavior)
    for name, pattern in {"cl100k": CL100K, "qwen2": QWEN2, "o200k": O200K, "clip": CLIP,
                          "deepseek": DEEPSEEK, "han": r"[\p{Han}\p{Hiragana}]+|\p{Sc}|\P{L}"}.items():
        zoo[f"pattern-{name}"] = p.Split(Regex(pattern), "isolated")
    return zoo


def decoder_zoo():
    d = decoders
    return {
        "byte-level": d.ByteLevel(), "word-piece": d.WordPiece(), "word-piece-plain": d.WordPiece("@@", False),
        "metaspace": d.Metaspace(), "metaspace-never": d.Metaspace(prepend_scheme="never"),
        "bpe": d.BPEDecoder(), "byte-fallback": d.ByteFallback(), "fuse": d.Fuse(),
        "replace": d.Replace("▁", " "), "replace-regex": d.Replace(Regex("[a-c]+"), "*"),
        "ctc": d.CTC(), "ctc-plain": d.CTC("a", "|", False),
        "llama": d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]),
        "strip": d.Sequence([d.Fuse(), d.Strip("a", 2, 0)]),
    }


DECODED_TOKENS = ["▁Hello", "▁wor", "ld", "##ing", "@@x", "</w>", "end</w>", "Ġthe", "Ã", "©", "<0xE2>", "<0x96>",
                  "<0x81>", "<0xFF>", "<0x41>", "<pad>", "|", ".", "n't", "'s", "do", "not", "a", "a", "b", "▁",
                  "é", "中", "?", "Ċ", "<s>", "  x"]
