"""A real model answers on the CPU: haul beside Transformers, the same GGUF file and dtype.

  benchmarks/generate.py [ROUNDS]

Measured in turns, ROUNDS (5) of each, medians printed: seconds from the start of a process to the
first token (page cache warm), seconds to the first token of a prompt of 512 tokens (prefill), and
tokens a second after the first over 128 greedy ones (decode), with the share of memory's bandwidth
that haul's decoding gets. The ids of both must be the same. Answer: 10 times faster to the first
token, prefill at least as fast, 1.5 times the tokens a second.
"""

import glob
import json
import os
import statistics
import subprocess
import sys
import time

HAUL = os.path.abspath(os.environ.get("HAUL", "build/haul"))
BUILD = os.path.dirname(HAUL)
QUESTION = "What is the capital of France?"
STORY = "Once upon a time, in a village by the sea,"
NEW, PROMPT = 128, 512

PEER = """
import json, os, sys, time
file, question, story, new, prompt = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging
logging.set_verbosity_error()
logging.disable_progress_bar()
folder, name = os.path.split(file)
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
def answer(ids, count):
    begin = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    return out[0, ids.shape[1]:].tolist(), time.perf_counter() - begin
chat = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True,
                                     return_tensors="pt", return_dict=True)["input_ids"]
with torch.inference_mode():
    first, _ = answer(chat, 1)
    print(json.dumps({"ids": first}), flush=True)
    ids = tokenizer(story, return_tensors="pt")["input_ids"]
    answer(ids, 2)
    _, one = answer(ids, 1)
    told, all = answer(ids, new)
    long = torch.arange(1000, 1000 + prompt)[None]
    answer(long, 1)
    _, prefill = answer(long, 1)
print(json.dumps({"ids": told, "rate": (len(told) - 1) / (all - one), "prefill": prefill}), flush=True)
"""


def haul(file, *arguments):
    begin = time.perf_counter()
    done = subprocess.run([HAUL, "run", file, "--temperature", "0", "--dtype", "float32", "--context", "1024",
                           "--json", *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout), time.perf_counter() - begin


def ours(file):
    first, start = haul(file, "--prompt", QUESTION, "--max-new-tokens", "1")
    told, _ = haul(file, "--raw", "--prompt", STORY, "--max-new-tokens", str(NEW))
    ids = ",".join(str(i) for i in range(1000, 1000 + PROMPT))
    long, _ = haul(file, "--ids", ids, "--max-new-tokens", "1")
    return {"start": start, "rate": told["stats"]["tokens_per_s"], "prefill": long["stats"]["first_token_s"],
            "ids": first["ids"] + told["ids"]}


def peers(file):
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", PEER, file, QUESTION, STORY, str(NEW), str(PROMPT)],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    first = json.loads(process.stdout.readline())
    start = time.perf_counter() - begin
    rest = json.loads(process.stdout.readline())
    process.wait()
    return {"start": start, "rate": rest["rate"], "prefill": rest["prefill"], "ids": first["ids"] + rest["ids"]}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    subprocess.run(["scripts/fetch-models"], check=True, stdout=subprocess.DEVNULL)
    file = os.path.abspath(glob.glob(".models/smollm2/*.gguf")[0])
    subprocess.run(["cmake", "--build", BUILD, "--target", "read_bandwidth"], check=True, stdout=subprocess.DEVNULL)
    limit = float(subprocess.run([os.path.join(BUILD, "benchmarks", "read_bandwidth")], check=True,
                                 capture_output=True, text=True).stdout)
    sides = {"haul": [], "Transformers": []}
    for _ in range(rounds):
        sides["haul"].append(ours(file))
        sides["Transformers"].append(peers(file))
    missed = []
    if len({tuple(one["ids"]) for side in sides.values() for one in side}) != 1:
        missed.append("the ids differ")
    print(f"{'':<28} {'haul':>10} {'Transformers':>14} {'ratio':>8}")
    for key, name, unit, least in [("start", "start to first token", "s", 10),
                                   ("prefill", f"prefill of {PROMPT}", "s", 1), ("rate", "decode", "tokens/s", 1.5)]:
        mine, theirs = (statistics.median(one[key] for one in sides[side]) for side in ("haul", "Transformers"))
        ratio = mine / theirs if key == "rate" else theirs / mine
        print(f"{name + ', ' + unit:<28} {mine:>10.3f} {theirs:>14.3f} {ratio:>7.1f}x")
        if ratio < least:
            missed.append(f"{name}: {ratio:.2f} times, {least} asked for")
    estimate = json.loads(subprocess.run([HAUL, "estimate", file, "--json", "--dtypes", "float32"], check=True,
                                         capture_output=True, text=True).stdout)
    weights = estimate["rows"][0]["total"]
    rate = statistics.median(one["rate"] for one in sides["haul"]) * weights / 1e9
    print(f"decode reads {rate:.1f} GB/s of weights, {rate / limit:.2f} of the {limit:.1f} that memory gives")
    for text in missed:
        print("MISSED:", text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
