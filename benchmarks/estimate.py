"""`haul estimate` on a local config, from start to exit, beside a fresh process of the peer.

The peer does what `accelerate estimate-memory` does, but for the request to the hub: it reads the
config, builds the model empty, and sizes it. Answer: the same total on both sides and, by the
median run of each, a ratio of at least 200, and for haul under 20 ms and 20 MB.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HAUL = os.environ.get("HAUL", "build/haul")
HAUL_RUNS = 50
PEER_RUNS = 3
LIMIT_SECONDS, LIMIT_BYTES, LEAST_RATIO = 0.020, 20e6, 200

CONFIGS = {
    "bert-base-cased": {"architectures": ["BertForMaskedLM"], "model_type": "bert",
                        "vocab_size": 28996},
    "Llama 3.1 70B": {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                      "dtype": "bfloat16", "hidden_size": 8192, "intermediate_size": 28672,
                      "num_attention_heads": 64, "num_key_value_heads": 8,
                      "num_hidden_layers": 80, "vocab_size": 128256,
                      "max_position_embeddings": 131072, "rope_theta": 500000.0},
}

PEER = """
import sys
import torch
from accelerate.commands.estimate import init_empty_weights, calculate_maximum_sizes
from transformers import AutoConfig, AutoModel
config = AutoConfig.from_pretrained(sys.argv[1])
with init_empty_weights():
    model = AutoModel.from_config(config, dtype=torch.float32)
print(calculate_maximum_sizes(model)[0])
"""


def run(command):
    """Seconds from start to exit, the peak of resident memory in bytes, and what it printed."""
    # A child's peak begins with its parent's: `time` is a smaller parent than this process.
    small = shutil.which("time")
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"{command[0]} ended with {child.returncode}")
        out.seek(0)
        text = out.read().decode()
    kilobytes = usage.ru_maxrss
    if small and command[0] == HAUL:
        timed = subprocess.run([small, "-f", "%M", *command], capture_output=True, text=True)
        kilobytes = int(timed.stderr.split()[-1])
    return seconds, kilobytes * 1024, text


def measure(command, runs):
    """The best and the median of the seconds, the most memory, and what was printed."""
    results = [run(command) for _ in range(runs)]
    seconds = [result[0] for result in results]
    memory = max(result[1] for result in results)
    return min(seconds), statistics.median(seconds), memory, results[0][2]


def main():
    failed = False
    print(f"{'':<18}{'haul ms':>9}{'median':>8}{'MB':>6}{'peer ms':>10}{'median':>8}{'MB':>6}"
          f"{'ratio':>8}")
    for name, config in CONFIGS.items():
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "config.json"), "w") as file:
                json.dump(config, file)
            ours = [HAUL, "estimate", folder, "--base-model", "--json"]
            run(ours)  # from the page cache, as the peer's second and third run
            best, seconds, memory, out = measure(ours, HAUL_RUNS)
            peer_best, peer_seconds, peer_memory, peer_out = measure(
                [sys.executable, "-c", PEER, folder], PEER_RUNS)
        total = json.loads(out)["rows"][0]["total"]
        ratio = peer_seconds / seconds
        print(f"{name:<18}{best * 1e3:9.2f}{seconds * 1e3:8.2f}{memory / 1e6:6.1f}"
              f"{peer_best * 1e3:10.0f}{peer_seconds * 1e3:8.0f}{peer_memory / 1e6:6.0f}"
              f"{ratio:8.0f}")
        good = (total == int(peer_out) and ratio >= LEAST_RATIO and seconds < LIMIT_SECONDS
                and memory < LIMIT_BYTES)
        if not good:
            print(f"  expected a total of {peer_out.strip()} (haul: {total}), a ratio of at least "
                  f"{LEAST_RATIO}, under {LIMIT_SECONDS * 1e3:.0f} ms and {LIMIT_BYTES / 1e6:.0f} MB")
        failed |= not good
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
