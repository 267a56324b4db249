#!/usr/bin/env python3
"""Tokenizers beside Hugging Face's fastest call, encode_batch_fast: ids alone on both sides.

  benchmarks/tokenizers.py [MEGABYTES]

Prints a table: megabytes a second on one thread and on all, and how many times the peer's that is
beside the goal; also the time to load, and whether a megabyte of one letter stays linear. Builds its
own program first and needs the peers of scripts/oracles.txt; both sides run on this machine, one
after the other, each on its best of several runs over the same texts.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# This file bears the peer's name: its own folder must not be searched.
sys.path = [p for p in sys.path if pathlib.Path(p or ".").resolve() != ROOT / "benchmarks"]
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
MORE = 5
BENCH = os.environ.get("HAUL_BENCH_TOKENIZERS", str(ROOT / "build" / "benchmarks" / "bench_tokenizers"))

import tokenizer_texts as texts  # noqa: E402
import tokenizer_zoo as zoo  # noqa: E402
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers  # noqa: E402


def documents(kind, megabytes):
    rng = random.Random(7)
    size = int(megabytes * 1e6)
    if kind == "code":
        text = texts.source_code(size)
    elif kind == "english":
        text = english(size)
    elif kind == "mixed":
        text = texts.mixed_scripts(rng, size // 2)
    else:
        text = "a" * size
        return [text]
    return [text[i : i + 4000] for i in range(0, len(text), 4000)]


def english(size):
    """Prose: the licences and manuals that packages install."""
    parts, total = [], 0
    folders = [pathlib.Path("/usr/share/perl"), pathlib.Path("/usr/share/doc"), pathlib.Path("/usr/share/common-licenses")]
    for folder in folders:
        for path in sorted(folder.glob("**/*")):
            if path.suffix in (".pod", ".txt", "") and path.is_file() and not path.is_symlink():
                try:
                    parts.append(path.read_text())
                except (UnicodeDecodeError, OSError):
                    continue
                total += len(parts[-1])
                if total >= size:
                    return "".join(parts)[:size]
    text = "".join(parts)
    return (text * (size // max(1, len(text)) + 1))[:size]


def peer(path, docs, one_thread):
    """Seconds of the peer, in a fresh process, because its pool of threads is made once."""
    script = (
        "import json,sys,time\nfrom tokenizers import Tokenizer\n"
        "a=time.perf_counter();t=Tokenizer.from_file(sys.argv[1]);load=time.perf_counter()-a\n"
        "d=open(sys.argv[2],encoding='utf-8',newline='').read().split('\\0')\nbest=1e9\n"
        "for _ in range(int(sys.argv[3])):\n a=time.perf_counter();r=t.encode_batch_fast(d);best=min(best,time.perf_counter()-a)\n"
        "print(json.dumps([load,best,sum(len(e.ids) for e in r)]))"
    )
    environment = dict(os.environ, TOKENIZERS_PARALLELISM="false" if one_thread else "true")
    runs = "2" if one_thread else "5"
    done = subprocess.run([sys.executable, "-c", script, path, docs, runs], capture_output=True, text=True,
                          env=environment, check=True)
    return json.loads(done.stdout)


def big_vocabulary():
    """A byte-level tokenizer with 128,000 entries, made of merges of merges."""
    base = zoo.byte_level(3000, split=zoo.CL100K)
    state = json.loads(base.to_str())
    vocabulary, merges = state["model"]["vocab"], state["model"]["merges"]
    rng = random.Random(3)
    tokens = [t for t in vocabulary if len(t) < 10 and t != "<|endoftext|>"]
    while len(vocabulary) < 128_000:
        left, right = rng.choice(tokens), rng.choice(tokens)
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append([left, right])
    return Tokenizer.from_str(json.dumps(state))


def prepare(tokenizer, kind, megabytes, folder):
    path, source = folder / "tokenizer.json", folder / "documents"
    path.write_text(tokenizer.to_str())
    source.write_bytes("\0".join(d.replace("\0", " ") for d in documents(kind, megabytes)).encode())
    return path, source


def run_haul(path, source):
    return json.loads(subprocess.run([BENCH, path, source], capture_output=True, check=True, text=True).stdout)


def measure(name, goal, tokenizer, kind, megabytes, folder):
    path, source = prepare(tokenizer, kind, megabytes, folder)
    ours = run_haul(path, source)
    load, one, tokens = peer(str(path), str(source), True)
    assert tokens == ours["tokens"], (name, kind, tokens, ours["tokens"])
    # All threads get more: the same text would be done before they are under way.
    size = source.stat().st_size / 1e6
    path, source = prepare(tokenizer, kind, MORE * megabytes, folder)
    ours["all"] = run_haul(path, source)["all"] * size / (source.stat().st_size / 1e6)
    every = peer(str(path), str(source), False)[1] * size / (source.stat().st_size / 1e6)
    print(f"{name:<12} {kind:<8} {goal:>5} {one / ours['one']:7.1f}x {every / ours['all']:7.1f}x"
          f" {load / ours['load']:6.1f}x {size / one:8.2f} {size / ours['one']:8.1f}"
          f" {size / every:8.2f} {size / ours['all']:8.1f} {load * 1e3:8.1f} {ours['load'] * 1e3:8.1f}", flush=True)


def main():
    if "HAUL_BENCH_TOKENIZERS" not in os.environ:
        subprocess.run(["cmake", "--build", ROOT / "build", "--target", "bench_tokenizers"], check=True,
                       stdout=subprocess.DEVNULL)
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 8
    print(f"{os.cpu_count()} processors, {megabytes:g} MB of each text; times the peer, then MB/s, then ms to load\n"
          f"{'tokenizer':<12} {'text':<8} {'goal':>5} {'one':>8} {'all':>8} {'load':>7} {'peer 1':>8} {'haul 1':>8}"
          f" {'peer all':>8} {'haul all':>8} {'peer ms':>8} {'haul ms':>8}")
    n, p = normalizers, pre_tokenizers
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        charsmap = zoo.charsmap(zoo.train_sentencepiece(folder, "unigram"))
        t5 = n.Sequence([n.Precompiled(charsmap), n.Strip(left=False, right=True), n.Replace(Regex(" {2,}"), "▁")])
        byte_level = {"english": 20, "code": 20, "mixed": 10}
        others = dict.fromkeys(byte_level, 10)
        for label, goals, tokenizer in (("gpt2", byte_level, zoo.byte_level(8000)),
                                        ("llama3-128k", byte_level, big_vocabulary()),
                                        ("bert", others, zoo.word_piece(8000)),
                                        ("t5", others, zoo.unigram(t5, p.Metaspace(), size=4000)),
                                        ("llama2", dict.fromkeys(byte_level, "-"), zoo.llama2())):
            for kind, goal in goals.items():
                measure(label, goal, tokenizer, kind, megabytes, folder)
            times = [run_haul(*prepare(tokenizer, "letter", size, folder))["one"] for size in (0.5, 1)]
            print(f"{label:<12} twice the letters take {times[1] / times[0]:.2f} times as long", flush=True)


if __name__ == "__main__":
    main()
