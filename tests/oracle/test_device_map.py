"""haul map --planner accelerate against Accelerate's own planner, on random module trees.

Accelerate lists tied groups in the order of a Python set of strings, which changes from process to
process; its find_tied_parameters is wrapped here so that groups come in registration order.
"""

import collections
import concurrent.futures
import json
import logging
import os
import random
import re
import subprocess
import warnings

import pytest

torch = pytest.importorskip("torch")
modeling = pytest.importorskip("accelerate.utils.modeling")

HAUL = os.environ.get("HAUL", "build/haul")
TREES = int(os.environ.get("HAUL_ORACLE_TREES", "5000"))
DTYPES = {
    "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "U8": torch.uint8, "BOOL": torch.bool, "F64": torch.float64, "F8_E4M3": torch.float8_e4m3fn,
}
FLOATS = ["F32", "F32", "F32", "F16", "BF16"]
CLASSES = ["Block", "Layer", "Attention", "Mlp", "Linear"]
NO_SPLIT = {name: type(name, (torch.nn.Module,), {}) for name in CLASSES + ["Model"]}

stock_find_tied = modeling.find_tied_parameters


def find_tied_in_order(model, **kwargs):
    order = {name: i for i, (name, _) in
             enumerate(model.named_parameters(remove_duplicate=False))}
    return sorted(stock_find_tied(model), key=lambda group: min(order[name] for name in group))


modeling.find_tied_parameters = find_tied_in_order
modeling.logger.propagate = False


class World:
    """A random tree, as a tree file and as a torch module, and what is asked of the planner."""

    def __init__(self, seed):
        self.random = r = random.Random(seed)
        self.parameters = []  # (owner module, owner path, name)
        self.counter = 0
        self.fractions = r.random() < 0.15
        self.buffer_rate = r.choice([0, 0, 0.1, 0.4])
        self.naming = r.choice(["numbers", "letters", "mixed", "repeat"])
        self.equal_sizes = r.random() < 0.3
        self.spec, self.model = self.module("", r.choice([1, 2, 3, 4]), root=True)
        self.tie()
        self.ask()

    def name(self, i, depth):
        if self.naming == "numbers":
            return str(i)
        if self.naming == "letters":
            return "abcdefghijklmnopqrstuvwxyz"[i]
        if self.naming == "repeat":
            return ["attn", "mlp", "x", "proj", "h"][i % 5] + ("" if i < 5 else str(i))
        return self.random.choice(["w", "h", "lin", "a"]) + str(i)

    def tensor(self, dtypes):
        r = self.random
        shape = [8, 8] if self.equal_sizes and r.random() < 0.8 else \
            [r.choice([1, 2, 3, 5, 8, 10, 16]) for _ in range(r.choice([0, 1, 2, 2]))]
        return r.choice(dtypes), shape

    def module(self, path, depth, root=False):
        r = self.random
        cls = "Model" if root else r.choice(CLASSES)
        spec = {"class": cls, "parameters": {}, "buffers": {}, "children": {}}
        module = NO_SPLIT[cls]()
        inner = root or (depth > 0 and r.random() < 0.7)
        for i in range(r.choice([0, 0, 0, 1]) if inner else r.choice([0, 1, 1, 2, 2])):
            dtype, shape = self.tensor(FLOATS)
            name = ["weight", "bias"][i]
            spec["parameters"][name] = {"dtype": dtype, "shape": shape}
            module.register_parameter(
                name, torch.nn.Parameter(torch.empty(shape, dtype=DTYPES[dtype], device="meta"),
                                         requires_grad=False))
            self.parameters.append((module, path, name, spec))
        if r.random() < self.buffer_rate:
            dtype, shape = self.tensor(["F32", "I64", "U8", "BF16"] +
                                       (["BOOL"] if self.fractions else []))
            persistent = r.random() < 0.7
            spec["buffers"]["mask"] = {"dtype": dtype, "shape": shape, "persistent": persistent}
            module.register_buffer("mask", torch.empty(shape, dtype=DTYPES[dtype], device="meta"),
                                   persistent=persistent)
        if inner:
            for i in range(r.choice([1, 2, 3, 4, 12] if depth > 1 else [1, 2, 3, 5])):
                name = self.name(i, depth)
                child_path = f"{path}.{name}" if path else name
                child_spec, child = self.module(child_path, depth - 1)
                spec["children"][name] = child_spec
                module.add_module(name, child)
        return spec, module

    def tie(self):
        r = self.random
        groups = []
        order = {}
        free = list(self.parameters)
        for i, (module, path, name, _) in enumerate(free):
            order[id(module), name] = i
        r.shuffle(free)
        if r.random() < 0.35:
            for _ in range(r.choice([1, 1, 2, 3])):
                size = r.choice([2, 2, 2, 3])
                if len(free) < size:
                    break
                members = [free.pop() for _ in range(size)]
                members.sort(key=lambda m: order[id(m[0]), m[2]])
                first, _, first_name, first_spec = members[0]
                shared = first._parameters[first_name]
                for module, _, name, spec in members[1:]:
                    module._parameters[name] = shared
                    spec["parameters"][name] = first_spec["parameters"][first_name]
                groups.append([f"{path}.{name}" if path else name for _, path, name, _ in members])
        self.spec["tied"] = groups

    def ask(self):
        r = self.random
        self.no_split = r.sample(CLASSES, r.choice([0, 0, 1, 2]))
        self.dtype = r.choice([None, None, None, "float16", "float32", "int8", "fp8"] +
                              (["int4", "int2"] if self.fractions else []))
        self.special = {}
        if r.random() < 0.2:
            names = [f"{p}.{n}" if p else n for _, p, n, _ in self.parameters] + ["mask"]
            for name in r.sample(names, min(2, len(names))):
                self.special[name] = r.choice(["float32", "float16", "int8"])
        self.mode = r.choice(["auto", "balanced", "balanced_low_0", "sequential", "sequential"])
        self.options = {
            "clean_result": r.random() < 0.7,
            "offload_buffers": r.random() < 0.3,
            "fallback_allocation": r.random() < 0.3,
        }
        total = modeling.compute_module_sizes(self.model)[""]
        memory = {}
        for gpu in r.choice([[], [0], [0], [0, 1], [0, 1], [0, 1, 2], [1, 2], [0, 2], [0, 1, 2, 3]]):
            memory[gpu] = self.budget(total)
        if r.random() < 0.6:
            memory["cpu"] = self.budget(total)
        if r.random() < 0.06:
            memory["disk"] = self.budget(total)
        if r.random() < 0.02:
            memory["mps"] = self.budget(total)
        if r.random() < 0.01:
            memory["tpu"] = 100
        if r.random() < 0.02:
            memory[0] = r.choice(["5k0MB", "-1GB", "MB", "5MBB"])
        elif r.random() < 0.05 and memory:
            memory[r.choice(list(memory))] = r.choice(["1KB", "1kb", "1.5KiB", "1MB", "2gib"])
        self.memory = memory

    def budget(self, total):
        r = self.random
        kind = r.random()
        if kind < 0.1:
            return 0
        if kind < 0.2:
            return 10 * int(total) + 1000
        if kind < 0.3:
            return int(total)
        return int(total * r.choice([0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0]) * r.uniform(0.8, 1.4))


class Records(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def peer(world):
    """The peer's map, budgets, warnings and needs, or the exception that it raised."""
    sizes = {"dtype": world.dtype, "special_dtypes": dict(world.special) or None}
    if sizes["dtype"] in ("fp8", "int4", "int2"):
        sizes["dtype"] = getattr(modeling.CustomDtype, sizes["dtype"].upper())
    records = Records()
    modeling.logger.addHandler(records)
    modeling.logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            memory = dict(world.memory)
            if world.mode == "sequential":
                memory = modeling.get_max_memory(memory)
            else:
                memory = modeling.get_balanced_memory(
                    world.model, memory, no_split_module_classes=world.no_split, **sizes,
                    low_zero=world.mode == "balanced_low_0")
            device_map = modeling.infer_auto_device_map(
                world.model, dict(memory), no_split_module_classes=world.no_split, **sizes,
                **world.options)
    except Exception as error:  # the peer's own failure is one of the results
        return error
    finally:
        modeling.logger.removeHandler(records)
    needs = {}
    for line in records.lines:
        for device, needed in re.findall(r"- (\S+): (\S+) bytes required", line):
            needs[device] = float(needed)
    buffer_warning = any("bytes of buffer" in str(w.message) for w in caught)
    return dict(device_map), memory, buffer_warning, needs


def ours(world, folder, seed):
    tree = folder / f"{seed}.json"
    tree.write_text(json.dumps(world.spec))
    command = [HAUL, "map", "--planner", "accelerate", "--json", "--tree", str(tree),
               "--device-map", world.mode,
               "--max-memory", json.dumps({str(k): v for k, v in world.memory.items()})]
    if world.no_split:
        command += ["--no-split", ",".join(world.no_split)]
    if world.dtype:
        command += ["--dtype", world.dtype]
    if world.special:
        command += ["--special-dtypes", ",".join(f"{k}={v}" for k, v in world.special.items())]
    if not world.options["clean_result"]:
        command.append("--no-clean")
    if world.options["offload_buffers"]:
        command.append("--offload-buffers")
    if world.options["fallback_allocation"]:
        command.append("--fallback-allocation")
    done = subprocess.run(command, capture_output=True, text=True)
    tree.unlink()
    return done.returncode, done.stdout, done.stderr


def is_valid(world, device_map):
    """Covers everything, and what is tied lies together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modeling.check_device_map(world.model, device_map)
    for group in modeling.find_tied_parameters(world.model):
        assert len({modeling._get_param_device(name, device_map) for name in group}) == 1, group


def compare(world, result, answer):
    """The kind of agreement, for the count."""
    code, stdout, stderr = answer
    if isinstance(result, ValueError):
        assert code == 2 and stderr.startswith("haul: error:"), (result, stdout, stderr)
        return "ValueError"
    assert code == 0, stderr
    got = json.loads(stdout)
    if isinstance(result, Exception):
        kind = type(result).__name__
        if kind in ("IndexError", "KeyError", "RuntimeError"):
            assert got.get("peer_failure") == kind
        is_valid(world, got["device_map"])
        return kind
    device_map, memory, buffer_warning, needs = result
    assert got["max_memory"] == {str(k): v for k, v in memory.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            modeling.check_device_map(world.model, device_map)
    except ValueError:
        assert got["peer_failure"] == "rejected"
        is_valid(world, got["device_map"])
        return "rejected by its own check"
    assert "peer_failure" not in got
    assert got["device_map"] == device_map
    assert any("buffers of offloaded" in w for w in got["warnings"]) == buffer_warning
    found = dict(re.findall(r"device (\S+): (\S+) bytes required", "\n".join(got["warnings"])))
    assert {k: float(v) for k, v in found.items()} == needs
    return "same"


def test_random_trees(tmp_path):
    counts = collections.Counter()
    devices = collections.Counter()
    failures = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for start in range(0, TREES, 200):
            worlds = [(seed, World(seed)) for seed in range(start, min(start + 200, TREES))]
            answers = [pool.submit(ours, world, tmp_path, seed) for seed, world in worlds]
            for (seed, world), answer in zip(worlds, answers):
                result = peer(world)
                try:
                    counts[compare(world, result, answer.result())] += 1
                except AssertionError as error:
                    failures.append((seed, type(result).__name__, str(error)[:600]))
                if not isinstance(result, Exception):
                    devices[len(set(result[0].values()))] += 1
    print("results:", dict(counts), "devices in a map:", dict(devices))
    assert not failures, f"{len(failures)} differ, first: {failures[:3]}"
    assert sum(counts.values()) == TREES
    assert counts["same"] > 0.6 * TREES
