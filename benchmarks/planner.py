"""The planners inside a process, beside the peer's on the same trees.

The trees are blocks of ten modules on three GPUs and RAM that hold three quarters of them. Measured
is planning alone, on a tree that is already read (haul) or built (the peer), the least of the
runs that half a second holds, each the way `auto` goes: with haul's planner a whole plan, with Accelerate's and with the
peer balanced budgets and a device map for them. On both sides a run's clock stops when its result
is there; the result is freed after that and before the next run. Answer: the same map from
`haul map --planner accelerate` and the peer; a plan of a 405B model in under 10 ms; 100,000 modules
in under 1 s with either planner, with near-linear growth over four sizes; and both planners at
least 500 times faster than the peer.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HAUL = os.path.abspath(os.environ.get("HAUL", "build/haul"))
BUILD = os.path.dirname(HAUL)
SIZES = [1_000, 10_000, 30_000, 100_000]
PEER_SIZES = [1_000, 10_000]


def tree(modules):
    """Blocks of ten modules: the block, its two halves and seven linear layers."""
    linear = {"class": "Linear", "parameters": {"weight": {"dtype": "BF16", "shape": [64, 64]}}}
    half = {"class": "Half", "children": {str(i): linear for i in range(3)}}
    block = {"class": "Block", "children": {"attn": half, "mlp": half, "out": linear}}
    blocks = {str(i): block for i in range(modules // 10)}
    return {"class": "Model", "children": {"layers": {"class": "ModuleList", "children": blocks}}}


def bytes_of(spec):
    own = sum(2 * t["shape"][0] * t["shape"][1] for t in spec.get("parameters", {}).values())
    return own + sum(bytes_of(child) for child in spec.get("children", {}).values())


def times(*arguments):
    done = subprocess.run([os.path.join(BUILD, "benchmarks", "planner_times"), *arguments],
                          capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def build(spec, classes):
    import torch
    module = classes[spec["class"]]()
    for name, tensor in spec.get("parameters", {}).items():
        module.register_parameter(name, torch.nn.Parameter(
            torch.empty(tensor["shape"], dtype=torch.bfloat16, device="meta")))
    for name, child in spec.get("children", {}).items():
        module.add_module(name, build(child, classes))
    return module


def peer(spec, memory):
    import logging

    import torch
    from accelerate.utils.modeling import get_balanced_memory, infer_auto_device_map
    logging.disable(logging.WARNING)
    names = ["Model", "ModuleList", "Block", "Half", "Linear"]
    model = build(spec, {name: type(name, (torch.nn.Module,), {}) for name in names})
    least = float("inf")
    end = time.perf_counter() + 0.5
    while time.perf_counter() < end:
        balanced = device_map = None
        start = time.perf_counter()
        balanced = get_balanced_memory(model, dict(memory))
        device_map = infer_auto_device_map(model, balanced)
        least = min(least, time.perf_counter() - start)
    return least, dict(device_map)


def main():
    subprocess.run(["cmake", "--build", BUILD, "--target", "planner_times"], check=True,
                   stdout=subprocess.DEVNULL)
    failures = []

    def hold(condition, text):
        if not condition:
            failures.append(text)

    config = os.path.join(ROOT, "tests/data/configs/llama-3.1-405b/config.json")
    eight = ",".join(f"{i}=80GB" for i in range(8)) + ",cpu=512GB"
    for name, memory in [("one GPU", "0=80GB,cpu=256GB"), ("eight GPUs", eight)]:
        seconds, = times("config", config, memory)
        print(f"405B on {name}: {seconds * 1e3:.1f} ms")
        hold(seconds < 0.010, f"405B on {name} took {seconds * 1e3:.1f} ms")

    try:
        import accelerate  # noqa: F401
        peer_sizes = PEER_SIZES
    except ImportError:
        peer_sizes = []
        print("accelerate is not installed: no comparison")
    print(f"{'modules':>9} {'haul':>11} {'accelerate mode':>17} {'the peer':>12} {'ratios':>15}")
    for modules in SIZES:
        spec = tree(modules)
        total = bytes_of(spec)
        memory = {0: total // 6, 1: total // 6, 2: total // 6, "cpu": total // 4}
        budgets = json.dumps({str(k): v for k, v in memory.items()})
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(spec, file)
            file.flush()
            mode, own = times("tree", file.name, budgets)
            answer = subprocess.run(
                [HAUL, "map", "--tree", file.name, "--json", "--planner", "accelerate",
                 "--device-map", "auto", "--max-memory", budgets],
                capture_output=True, text=True, check=True).stdout
        line = f"{modules:>9} {own * 1e3:>8.2f} ms {mode * 1e3:>14.2f} ms"
        if modules in peer_sizes:
            seconds, device_map = peer(spec, memory)
            hold(json.loads(answer)["device_map"] == device_map, f"{modules}: another map")
            line += f" {seconds * 1e3:>9.0f} ms {seconds / own:>6.0f}x {seconds / mode:>6.0f}x"
            for planner, taken in [("haul", own), ("accelerate mode", mode)]:
                hold(seconds / taken >= 500,
                     f"{modules}, {planner}: only {seconds / taken:.0f} times faster")
        print(line, flush=True)
        hold(max(own, mode) < 1, f"{modules} modules took {max(own, mode):.2f} s")
    for failure in failures:
        print("MISSED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
