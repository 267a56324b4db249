"""Carries out the scenarios of tests/support/dispatch_cases.cpp, on haul and on Accelerate."""

import copy
import functools
import gc
import json
import logging
import os
import subprocess
import warnings

import torch
from accelerate import (Accelerator, cpu_offload, disk_offload, dispatch_model, init_empty_weights,
                        load_checkpoint_and_dispatch, load_checkpoint_in_model)
from accelerate.hooks import remove_hook_from_submodules
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

import dispatch_models as models

CASES = os.path.join(os.path.dirname(os.environ.get("HAUL", "build/haul")),
                     "tests/support/dispatch_cases")
OF_A_SIDE = ("folder", "offload_folder", "output")  # names in the side's own folder
OF_THE_PEER = ("way", "peer_map")

gc.freeze()  # Accelerate collects garbage after each shard: what is imported is none


def for_haul(scenario, folder):
    scenario = copy.deepcopy(scenario)
    for step in scenario["steps"]:
        step |= {key: str(folder / step[key]) for key in OF_A_SIDE if key in step}
        for key in OF_THE_PEER:
            step.pop(key, None)
    return scenario


@functools.cache
def program():
    return subprocess.Popen([CASES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def haul(scenario, folder):
    """What haul's program saw, step by step, the built model first."""
    running = program()
    print(json.dumps(for_haul(scenario, folder), default=str), file=running.stdin, flush=True)
    line = running.stdout.readline()
    assert line, f"dispatch_cases ended with {running.wait()}"
    return json.loads(line)


class Log(logging.Handler):
    """What Accelerate says while it is open."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def __enter__(self):
        # One that does not pass on what it gets, which other tests see to, must be asked itself.
        names = ["accelerate", "accelerate.utils.modeling"]
        self.loggers = [logging.getLogger(names[0])]
        self.loggers += [x for x in map(logging.getLogger, names[1:]) if not x.propagate]
        for logger in self.loggers:
            logger.addHandler(self)
        self.caught = warnings.catch_warnings(record=True)
        self.warned = self.caught.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *error):
        self.caught.__exit__(*error)
        self.lines += [str(w.message) for w in self.warned]
        for logger in self.loggers:
            logger.removeHandler(self)


def where(model):
    return {name: [tensor.device.type, str(tensor.dtype).removeprefix("torch.")]
            for name, tensor in models.tensors_of(model).items()}


class Peer:
    """The same with Accelerate. Loading is followed by dispatching, as it is within haul: in one
    call where the step's "way" says so. "peer_map" is its map where that is another."""

    def __init__(self, scenario, folder):
        self.folder = folder
        if "values" in scenario:
            self.model = models.plain(scenario["model"], load_file(scenario["values"]))
        else:
            with init_empty_weights():
                self.model = models.MODELS[scenario["model"]]().eval()
            models.tie(self.model)  # which building it empty has undone
        self.seen = [{"do": "build", "tensors": where(self.model)}]
        for step in scenario["steps"]:
            result = {"do": step["do"], "error": None}
            with Log() as log:
                try:
                    getattr(self, step["do"])(step, result)
                except Exception as error:  # whatever it is, it is what a user sees
                    result["error"] = f"{type(error).__name__}: {error}"
            self.seen.append({"tensors": where(self.model), **result, "log": log.lines})

    def at(self, step, key):
        return str(self.folder / step[key]) if key in step else None

    def load(self, step, result):
        options = {key: step[key] for key in ("offload_buffers", "strict") if key in step}
        if "dtype" in step:
            options["dtype"] = getattr(torch, step["dtype"])
        device_map = step.get("peer_map", step["device_map"])
        folder = self.at(step, "offload_folder")
        if step.get("way") == "one call":
            load_checkpoint_and_dispatch(self.model, str(step["checkpoint"]), device_map,
                                         offload_folder=folder, **options)
            return
        load_checkpoint_in_model(
            self.model, str(step["checkpoint"]), device_map, offload_folder=folder,
            keep_in_fp32_modules=step.get("keep_in_fp32_modules"), **options)
        result["loaded"] = where(self.model)
        if device_map is not None:
            self.dispatch(step, result)

    def dispatch(self, step, result):
        dispatch_model(self.model, step["device_map"], offload_dir=self.at(step, "offload_folder"),
                       offload_buffers=step.get("offload_buffers", False))

    def cpu_offload(self, step, result):
        cpu_offload(self.model, offload_buffers=step.get("offload_buffers", False))

    def disk_offload(self, step, result):
        disk_offload(self.model, self.at(step, "folder"),
                     offload_buffers=step.get("offload_buffers", False))

    def forward(self, step, result):
        with torch.no_grad():
            # Where it lies in a file's mapping decides on some CPUs how torch sums.
            result["output"] = self.model(load_file(step["input"])["input"].clone())

    def values(self, step, result):
        result["values"] = {n: t.detach().clone() for n, t in models.tensors_of(self.model).items()}

    def save(self, step, result):
        accelerator = Accelerator(cpu=True)
        accelerator.save_model(self.model, self.at(step, "folder"), step["max_shard_size"])

    def move(self, step, result):
        self.model.to(torch.double)

    def undispatch(self, step, result):
        remove_hook_from_submodules(self.model)


class World:
    """The values of a model, checkpoints of them, and a folder for each side."""

    def __init__(self, path, model, seed=1):
        self.path, self.model = path, model
        self.state = models.state_of(model, seed)
        self.input = torch.randn(2, models.WIDTHS[model],
                                 generator=torch.Generator().manual_seed(seed))
        self.outputs = 0
        for side in ("haul", "peer"):
            (path / side).mkdir(parents=True)

    def checkpoint(self, kind="safetensors", without=(), extra=(), dtype=None):
        state = {name: value.to(dtype) if dtype and value.is_floating_point() else value
                 for name, value in self.state.items() if name not in without}
        state |= {name: torch.ones(2) for name in extra}
        if kind == "bin":
            torch.save(state, self.path / "pytorch_model.bin")
            return self.path / "pytorch_model.bin"
        if kind == "safetensors":
            save_file(state, self.path / "model.safetensors", {"format": "pt"})
            return self.path / "model.safetensors"
        (self.path / kind).mkdir()
        save_torch_state_dict(state, self.path / kind, max_shard_size=100)
        return self.path / kind

    def values(self):
        save_file(self.state, self.path / "values.safetensors", {"format": "pt"})
        return self.path / "values.safetensors"

    def scenario(self, *steps, values=False):
        return {"model": self.model, "steps": list(steps),
                **({"values": self.values()} if values else {})}

    def forward(self, dtype=None):
        self.outputs += 1
        file = self.path / f"input.{dtype}"
        save_file({"input": self.input.to(dtype or torch.float32)}, file)
        return {"do": "forward", "input": file, "output": f"output.{self.outputs}"}

    def run(self, *steps, values=False):
        """What both sides saw, step by step, the built model first."""
        scenario = self.scenario(*steps, values=values)
        return haul(scenario, self.path / "haul"), Peer(scenario, self.path / "peer").seen

    def ours(self, step):
        """What haul wrote at a step."""
        tensors = load_file(self.path / "haul" / step["output"])
        return tensors["output"] if step["do"] == "forward" else tensors

    def expected(self, dtype=None, state=None):
        model = models.plain(self.model, state or self.state, dtype)
        with torch.no_grad():
            return model(self.input.to(dtype or torch.float32))


def as_the_peer_says(tensors):
    """Where Accelerate's weight is on meta, haul's is not resident."""
    return {name: ["meta" if place == "away" else place, dtype]
            for name, (place, dtype) in tensors.items()}


def assert_same_table(ours, theirs, but=()):
    """`but`: names with what each side is to say instead."""
    ours = as_the_peer_says(ours)
    assert ours.keys() == theirs.keys()
    for name in ours:
        expected = but[name] if name in but else (theirs[name], theirs[name])
        assert (ours[name], theirs[name]) == expected, name


def assert_equal(found, expected):
    assert found.dtype == expected.dtype and torch.equal(found, expected)
