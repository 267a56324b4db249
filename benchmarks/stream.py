"""Disk offload on the CPU: haul beside Accelerate and the disk, in one memory cgroup.

  benchmarks/stream.py [GIGABYTES]

A chain of stock Linears in float32 (4 GB unless told), every one on disk, run one row at a time in a
memory cgroup of a quarter of the model, with the page cache cold (dropped before each pass) and warm.
Prints GB/s of weights: what O_DIRECT reads give in the same run, haul's, Accelerate's disk offload,
and the peak of resident memory of each. Answer: haul at 0.9 of the limit or more when cold, and never
slower than Accelerate. Then the same checkpoint is loaded whole into RAM, cold, outside of the group:
haul at 0.9 or more of what O_DIRECT reads into as much fresh memory give. The host of a virtual
machine may have taken free memory back, and gives it again more slowly than a disk reads: each of
these processes touches as much as the model and frees it just before. Needs root, for the cgroup.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
BENCH = BUILD / "benchmarks" / "bench_stream"
WIDTH, PASSES, ROUNDS = 4096, 3, 5
LEAST = 0.9

PEER = """
import json, os, resource, sys, time
folder, layers, width, passes, cold = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "cold"
import torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
with init_empty_weights():
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
offload = os.path.join(folder, "peer")
# A map with nothing but "disk" makes it fail: its first layer stays in RAM.
device_map = {str(i): "disk" if i else "cpu" for i in range(layers)}
begin = time.perf_counter()
model = load_checkpoint_and_dispatch(model, os.path.join(folder, "model.safetensors"), device_map=device_map, offload_folder=offload)
load = time.perf_counter() - begin
def drop():
    for root, _, names in os.walk(offload):
        for name in names:
            file = os.open(os.path.join(root, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
x = torch.ones(1, width)
times = []
with torch.inference_mode():
    for i in range(passes + 1):
        if cold:
            drop()
        begin = time.perf_counter()
        model(x)
        if i:
            times.append(time.perf_counter() - begin)
times.sort()
print(json.dumps({"load_seconds": load, "pass_seconds": times[len(times) // 2]}))
"""


LOAD_PEER = """
import json, mmap, os, sys, time
folder, layers, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
import torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
with init_empty_weights():
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
path = os.path.join(folder, "model.safetensors")
file = os.open(path, os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
huge_page, populate_write = 14, 23  # names that not every Python has
with mmap.mmap(-1, layers * width * width * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
    memory.madvise(huge_page)
    memory.madvise(populate_write)
begin = time.perf_counter()
model = load_checkpoint_and_dispatch(model, path, device_map={"": "cpu"})
# Its tensors are a map of the file: reading one number a page is what loads them.
sum(p.view(-1)[:: 1024].sum().item() for p in model.parameters())
print(json.dumps({"load_seconds": time.perf_counter() - begin}))
"""


class MemoryGroup:
    """A memory cgroup, of version 1 or 2, that a command can be started in."""

    def __init__(self, limit):
        old = pathlib.Path("/sys/fs/cgroup/memory")
        self.is_old = old.exists()
        self.path = (old if self.is_old else pathlib.Path("/sys/fs/cgroup")) / f"haul-bench-{os.getpid()}"
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if self.is_old else "memory.max")).write_text(str(limit))

    def run(self, command, **keywords):
        def enter():
            (self.path / "cgroup.procs").write_text(str(os.getpid()))
        return subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, **keywords)

    def close(self):
        self.path.rmdir()


def warm(folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                while file.read(1 << 24):
                    pass


def measure(group, command, size):
    timed = group.run(["/usr/bin/time", "-f", "%M", *map(str, command)])
    if timed.returncode != 0:
        return None, f"ended with {timed.returncode}: {timed.stderr.strip().splitlines()[-2:]}"
    result = json.loads(timed.stdout.strip().splitlines()[-1])
    peak = int(timed.stderr.split()[-1]) * 1024
    return size / result["pass_seconds"] / 1e9, f"load {result['load_seconds']:.1f} s, peak {peak / 1e6:.0f} MB"


def cold_load(folder, layers, size):
    """Whether loading into RAM, in turns with the limit and the peer, is at 0.9 of the limit or more."""
    commands = {"O_DIRECT": [BENCH, "limit", os.path.join(folder, "model.safetensors"), "whole"],
                "haul": [BENCH, "run", folder, "cpu", "cpu", 0, 1, "cold"],
                "Accelerate": [sys.executable, "-c", LOAD_PEER, folder, layers, WIDTH]}
    rates = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
            result = json.loads(done.stdout.strip().splitlines()[-1])
            rates[name].append(result["limit_gb_per_second"] if name == "O_DIRECT"
                               else size / result["load_seconds"] / 1e9)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    for name, rate in middle.items():
        print(f"load  {name:<11} {rate:5.2f} GB/s", flush=True)
    return middle["haul"] >= LEAST * middle["O_DIRECT"]


def main():
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 4
    layers = round(gigabytes * 1e9 / (WIDTH * WIDTH * 4))
    size = layers * WIDTH * WIDTH * 4
    subprocess.run(["cmake", "--build", BUILD, "--target", "bench_stream"], check=True, stdout=subprocess.DEVNULL)
    folder = tempfile.mkdtemp(prefix="haul-bench-", dir=os.environ.get("HAUL_BENCH_FOLDER"))
    group = MemoryGroup(size // 4)
    good = True
    try:
        subprocess.run([BENCH, "make", folder, str(layers), str(WIDTH), "F32"], check=True)
        os.sync()
        slots = size // 16 // 1_000_000
        file = os.path.join(folder, "model.safetensors")
        for state in ("cold", "warm"):
            limit = json.loads(subprocess.run([BENCH, "limit", file], check=True, capture_output=True).stdout)[
                "limit_gb_per_second"]
            rates = {}
            for name, command in (
                    ("haul", [BENCH, "run", folder, "cpu", "disk", slots, PASSES, state]),
                    ("Accelerate", [sys.executable, "-c", PEER, folder, layers, WIDTH, PASSES, state])):
                if state == "warm":
                    warm(folder)  # outside of the group, so that it is not the group's memory
                part = size if name == "haul" else size * (layers - 1) // layers
                rates[name], remark = measure(group, command, part)
                rate = "failed" if rates[name] is None else f"{rates[name]:.2f} GB/s"
                print(f"{state}  {name:<11} {rate:>10}  {remark}", flush=True)
            print(f"{state}  O_DIRECT    {limit:5.2f} GB/s", flush=True)
            ours, peer = rates["haul"], rates["Accelerate"]
            good &= ours is not None and (peer is None or ours >= peer)
            good &= state == "warm" or (ours is not None and ours >= LEAST * limit)
        good &= cold_load(folder, layers, size)
    finally:
        group.close()
        shutil.rmtree(folder)
    print("reached" if good else "MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
