"""Checkpoints that haul saves are loaded by Accelerate, and the other way round."""

import json

import pytest
from accelerate import load_checkpoint_in_model
from safetensors.torch import load_file

import dispatch_models as models
from dispatch_sides import Peer, World, assert_equal, haul

MAPS = {
    "small": {"linear1": "disk", "batchnorm": "cpu", "linear2": "cpu"},
    "nested": {"first": "disk", "blocks": "cpu", "last": "disk"},
    "tied": {"encoder": "disk", "middle": "cpu", "decoder": "disk"},
    "buffers": {"gain": "cpu", "bias": "cpu", "linear": "disk", "shift": "disk"},
    "twice": {"shared": "disk", "again": "disk", "other": "cpu"},
    "numbered": {"a.1": "cpu", "a.10": "disk", "a.2": "cpu"},
}
# Accelerate does not save tensors of the root of a model that is offloaded in part.
LOST = {"buffers": {"gain", "bias"}}


def stored(folder):
    tensors, files = {}, sorted(folder.glob("*.safetensors"))
    for file in files:
        tensors |= load_file(file)
    return tensors, files


def index(folder):
    return json.loads((folder / "model.safetensors.index.json").read_text())


@pytest.mark.parametrize("size", [100, 10_000])
@pytest.mark.parametrize("state", ["plain", "loaded", "dispatched"])
@pytest.mark.parametrize("name", MAPS)
def test_each_loads_what_the_other_saved(tmp_path, name, state, size):
    world = World(tmp_path, name)
    save = {"do": "save", "folder": "saved", "max_shard_size": size}
    place = {"device_map": MAPS[name], "offload_folder": "offload", "offload_buffers": True}
    steps = {"plain": [], "dispatched": [{"do": "dispatch", **place}],
             "loaded": [{"do": "load", "checkpoint": world.checkpoint(), **place}]}[state]
    ours, theirs = world.run(*steps, save, values=state != "loaded")
    assert ours[-1]["error"] is None and theirs[-1]["error"] is None
    mine, files = stored(tmp_path / "haul/saved")
    other, other_files = stored(tmp_path / "peer/saved")
    lost = LOST.get(name, set()) if state != "plain" else set()
    once = {**dict(models.MODELS[name]().named_parameters()),
            **dict(models.MODELS[name]().named_buffers())}
    assert mine.keys() == once.keys(), "a shared tensor once, under its first name"
    for key, value in mine.items():
        assert_equal(value, world.state[key])
    if name == "small" and size == 100:
        assert len(files) == len(other_files) == 3
    # Of what is offloaded Accelerate saves every name of a tied weight. Else the files are the same.
    if name == "tied" and state != "plain":
        assert {"encoder.weight", "decoder.weight"} <= other.keys()
    elif lost:
        assert other.keys() == once.keys() - lost
    else:
        assert [file.name for file in files] == [file.name for file in other_files]
        if len(files) > 1:
            assert index(tmp_path / "haul/saved") == index(tmp_path / "peer/saved")

    run = world.forward()
    again = haul(world.scenario({"do": "load", "checkpoint": tmp_path / "peer/saved",
                                    "device_map": {"": "disk"}, "offload_folder": "offload",
                                    "allow_missing": bool(lost)}, run), tmp_path / "haul")
    assert set(again[1]["missing"]) == lost
    if not lost:
        assert_equal(world.ours(run), world.expected())
    peer = Peer(world.scenario(), tmp_path / "peer").model
    load_checkpoint_in_model(peer, str(tmp_path / "haul/saved"), {"": "cpu"})
    assert_equal(peer(world.input).detach(), world.expected())
