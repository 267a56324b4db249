"""Dequantisation: GB of float32 written a second on one core, beside memcpy and the gguf package."""

import json
import os
import subprocess
import time

import gguf
import numpy as np

BUILD = os.path.dirname(os.environ.get("HAUL", "build/haul"))
VALUES = 1 << 22


def peer(name):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(1)
    blocks = random.integers(0, 256, (VALUES // 4096, 4096 // elements * size), dtype=np.uint8)
    best = float("inf")
    with np.errstate(all="ignore"):
        for _ in range(3):
            start = time.perf_counter()
            gguf.quants.dequantize(blocks, kind)
            best = min(best, time.perf_counter() - start)
    return VALUES * 4 / best / 1e9


def main():
    subprocess.run(["cmake", "--build", BUILD, "--target", "bench_dequantise"], check=True, stdout=subprocess.DEVNULL)
    command = [f"{BUILD}/benchmarks/bench_dequantise", "--benchmark_format=json", "--benchmark_min_time=0.3"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rates = {run["name"]: run["bytes_per_second"] / 1e9 for run in report["benchmarks"]}
    limit = rates.pop("memcpy")
    print(f"{'type':8}{'haul GB/s':>12}{'of memcpy':>12}{'gguf GB/s':>12}{'times':>8}")
    for name, rate in rates.items():
        theirs = peer(name)
        print(f"{name:8}{rate:12.2f}{rate / limit:12.0%}{theirs:12.3f}{rate / theirs:8.0f}")
    print(f"memcpy  {limit:12.2f}")


main()
