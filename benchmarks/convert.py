"""haul convert of a pickle against cp with an fsync, in one run on one disk.

Makes a torch.save file (2 GB, or the number of MB given as the argument) and prints, for each
route, the best and the median of five runs that take turns, and the peak memory of the convert
beside the largest tensor. Exits 1 when the convert is slower than 0.9 of cp or takes more than the
largest tensor plus 100 MB.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch

HAUL = os.environ.get("HAUL", "build/haul")
ROUNDS = 5


def make_pickle(path, megabytes):
    torch.manual_seed(0)
    rows = 16 << 20 >> 2  # 16 MB of float32 a tensor
    tensors = {f"layers.{i}.weight": torch.randn(rows // 1024, 1024) for i in range(megabytes // 16)}
    torch.save(tensors, path)
    return os.path.getsize(path), max(t.numel() * 4 for t in tensors.values())


def copy(source, folder):
    target = os.path.join(folder, "copy.bin")
    start = time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    subprocess.run(["sync", target], check=True)  # fsync of this file
    return time.perf_counter() - start


def peak_memory(pid):
    # The high-water mark of the process's own memory; wait4's would count this script's.
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def convert(source, folder):
    target = os.path.join(folder, "converted")
    start = time.perf_counter()
    process = subprocess.Popen([HAUL, "convert", source, target], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, peak_memory(process.pid))
        time.sleep(0.002)
    seconds = time.perf_counter() - start
    assert process.returncode == 0, process.returncode
    return seconds, peak


def main():
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    root = tempfile.mkdtemp(prefix="haul-bench-", dir=os.environ.get("HAUL_BENCH_FOLDER"))
    try:
        source = os.path.join(root, "pytorch_model.bin")
        size, largest = make_pickle(source, megabytes)
        subprocess.run(["sync", source], check=True)
        copies, converts, peak = [], [], 0
        for _ in range(ROUNDS):
            for route in ("cp", "convert"):
                folder = os.path.join(root, "out")
                os.mkdir(folder)
                if route == "cp":
                    copies.append(copy(source, folder))
                else:
                    seconds, memory = convert(source, folder)
                    converts.append(seconds)
                    peak = max(peak, memory)
                shutil.rmtree(folder)
                os.sync()
    finally:
        shutil.rmtree(root)

    print(f"input                 {size / 1e9:.2f} GB, largest tensor {largest / 1e6:.1f} MB")
    for name, times in (("cp and fsync", copies), ("haul convert", converts)):
        best, median = min(times), statistics.median(times)
        print(f"{name:21} best {size / best / 1e9:.2f} GB/s, median {size / median / 1e9:.2f} GB/s")
    ratio = statistics.median(copies) / statistics.median(converts)
    print(f"convert / cp          {ratio:.2f} of the speed (median; at least 0.9 is wanted)")
    print(f"convert's peak memory {peak / 1e6:.1f} MB (at most {(largest + 100e6) / 1e6:.1f} MB is wanted)")
    return 0 if ratio >= 0.9 and peak <= largest + 100e6 else 1


if __name__ == "__main__":
    sys.exit(main())
