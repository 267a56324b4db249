"""haul's dispatch beside Accelerate's, live and on the CPU: where each tensor is, dtypes, remarks,
failures, outputs, files. Where Accelerate has a weight on meta, haul's is not resident. Where
Accelerate goes astray, a test says so, and holds haul to the right thing.

Without a GPU a chain of whole models (cpu_offload_with_hook) does nothing that could be seen: it is
not compared here. Maps that would name a GPU have the CPU in its place.
"""

import json

import pytest
import torch
from accelerate.utils import extract_submodules_state_dict, offload_state_dict
from accelerate.utils.modeling import load_offloaded_weights
from accelerate.utils.offload import (OffloadedWeightsLoader, load_offloaded_weight,
                                      offload_weight, save_offload_index)
from safetensors.torch import load_file

import dispatch_models as models
from dispatch_sides import Peer, World, assert_equal, assert_same_table, haul

MIXED = {"linear1": "cpu", "batchnorm": "disk", "linear2": "cpu"}
RUNNING = ("batchnorm.running_mean", "batchnorm.running_var", "batchnorm.num_batches_tracked")


def load(checkpoint, device_map, **options):
    return {"do": "load", "checkpoint": checkpoint, "device_map": device_map,
            "offload_folder": "offload", **options}


def empty(name):
    with torch.device("meta"):
        return models.MODELS[name]().eval()


def assert_same_values(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        assert_equal(found[name], expected[name])


# Weights that Accelerate wrote


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_haul_reads_what_the_peer_offloaded(tmp_path, dtype):
    world = World(tmp_path, "typed")
    weight = world.state["weight"] = world.state["weight"].to(getattr(torch, dtype))
    folder = tmp_path / "offloaded"
    folder.mkdir()
    index = offload_weight(weight, "weight", folder, {})
    offload_weight(world.state["ids"], "ids", folder, index)
    save_offload_index(index, folder)
    assert index["weight"] == {"shape": [10, 5], "dtype": dtype}
    assert (folder / "weight.dat").exists()
    assert_equal(load_offloaded_weight(folder / "weight.dat", index["weight"]), weight)
    theirs = models.MODELS["typed"]().to(getattr(torch, dtype))
    load_offloaded_weights(theirs, index, folder)

    values = {"do": "values", "output": "values"}
    for place in ("cpu", "disk"):
        step = load(folder, {"": place}, dtype=dtype)
        ours = haul(world.scenario(step, values), tmp_path / "haul")
        assert ours[1]["error"] is None and ours[2]["error"] is None
        assert ours[1]["tensors"]["weight"] == [{"disk": "away"}.get(place, place), dtype]
        assert_same_values(world.ours(values), world.state)
        assert_same_values(world.ours(values), theirs.state_dict())


@pytest.mark.parametrize("name", models.MODELS)
def test_haul_runs_a_model_from_the_peers_offload_folder(tmp_path, name):
    world = World(tmp_path, name)
    offload_state_dict(tmp_path / "offloaded", world.state)
    steps = [world.forward(), world.forward()]
    scenario = world.scenario(load(tmp_path / "offloaded", {"": "disk"}), *steps)
    ours = haul(scenario, tmp_path / "haul")
    assert "cpu" not in {place for key, (place, _) in ours[1]["tensors"].items()
                         if key in dict(empty(name).named_parameters())}
    for step in steps:
        assert_equal(world.ours(step), world.expected())


# Weights that haul wrote


@pytest.mark.parametrize("offload_buffers", [False, True])
@pytest.mark.parametrize("name", models.MODELS)
def test_disk_offload_is_the_peers_in_one_file(tmp_path, name, offload_buffers):
    world = World(tmp_path, name)
    runs = [world.forward(), world.forward()]
    ours, theirs = world.run({"do": "disk_offload", "folder": "offload", "keep": tmp_path / "kept",
                              "offload_buffers": offload_buffers},
                             runs[0], {"do": "undispatch"}, runs[1], values=True)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same_table(mine["tensors"], other["tensors"])
    assert "away" in {place for place, _ in ours[1]["tensors"].values()}
    for number, run in ((2, runs[0]), (4, runs[1])):
        assert_equal(world.ours(run), world.expected())
        assert_equal(theirs[number]["output"], world.expected())

    # Accelerate: a file for each name. haul: one file that appears when it is complete, with a hash
    # of its origin in its name, and only what is offloaded in it, a shared tensor once. What was
    # written of values in memory goes with their model.
    index = json.loads((tmp_path / "peer/offload/index.json").read_text())
    assert index.keys() == world.state.keys()
    assert not list((tmp_path / "haul/offload").iterdir())
    [file] = (tmp_path / "kept").iterdir()
    assert file.match("haul-*.safetensors")
    written = load_file(file)
    away = {key for key, (place, _) in ours[1]["tensors"].items() if place == "away"}
    once = {**dict(empty(name).named_parameters()), **dict(empty(name).named_buffers())}
    assert_same_values(written, {key: world.state[key] for key in once if key in away})

    # Accelerate can use that file, too.
    reads = {key: {"safetensors_file": str(file), "weight_name": key} for key in written}
    loader = OffloadedWeightsLoader(index=reads)
    assert_same_values({key: loader[key] for key in loader}, written)


def test_disk_offload_never_takes_another_models_folder(tmp_path):
    first, second = World(tmp_path / "1", "small", 1), World(tmp_path / "2", "small", 2)
    offload = {"do": "disk_offload", "folder": tmp_path / "shared", "offload_buffers": True}
    run = second.forward()
    haul(first.scenario(offload, values=True), first.path / "haul")
    ours = haul(second.scenario(offload, run, values=True), second.path / "haul")
    assert ours[1]["error"] is None
    assert_equal(second.ours(run), second.expected())
    # Accelerate takes an index.json for its own.
    offload = {**offload, "folder": tmp_path / "peers"}
    Peer(first.scenario(offload, values=True), first.path / "peer")
    theirs = Peer(second.scenario(offload, run, values=True), second.path / "peer").seen
    first.input = second.input
    assert_equal(theirs[2]["output"], first.expected())


@pytest.mark.parametrize("kind", ["safetensors", "shards"])
def test_loading_to_disk_points_into_the_checkpoint(tmp_path, kind):
    world = World(tmp_path, "nested")
    run = world.forward()
    ours, theirs = world.run(
        load(world.checkpoint(kind), {"first": "cpu", "blocks": "disk", "last": "disk"}), run)
    assert_same_table(ours[1]["tensors"], theirs[1]["tensors"])
    assert_equal(world.ours(run), theirs[2]["output"])
    assert not (tmp_path / "haul/offload").exists(), "nothing had to be written"
    copied = {file.stem for file in (tmp_path / "peer/offload").glob("*.dat")}
    assert copied == {key for key, (place, _) in ours[1]["tensors"].items() if place == "away"}


# Device tables


def test_names_that_begin_alike_are_kept_apart(tmp_path):
    world = World(tmp_path, "numbered")
    theirs = extract_submodules_state_dict(world.state, ["a.1", "a.2"])
    assert theirs.keys() == {"a.1.a", "a.2.a"}
    for device_map in ({"a.1": "disk", "a.10": "cpu", "a.2": "disk"},
                       {"": "cpu", "a.1": "disk", "a.2": "disk"}):
        ours = haul(world.scenario(load(world.checkpoint(), device_map)), tmp_path / "haul")
        away = {name for name, (place, _) in ours[1]["tensors"].items() if place == "away"}
        assert away == theirs.keys()


@pytest.mark.parametrize("way", ["one call", "two calls"])
@pytest.mark.parametrize("offload_buffers", [False, True])
def test_a_batch_norm_on_disk(tmp_path, offload_buffers, way):
    world = World(tmp_path, "small")
    run = world.forward()
    ours, theirs = world.run(load(world.checkpoint(), MIXED, way=way,
                                  offload_buffers=offload_buffers), run)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same_table(mine["tensors"], other["tensors"])
    if way == "two calls":
        assert_same_table(ours[1]["tensors"], theirs[1]["loaded"])
    assert ours[1]["tensors"]["batchnorm.weight"][0] == "away"
    mean = ours[1]["tensors"]["batchnorm.running_mean"]
    assert mean == ["away" if offload_buffers else "cpu", "float32"]
    assert_equal(world.ours(run), world.expected())
    if offload_buffers:
        assert_equal(theirs[2]["output"], world.expected())
    else:  # Accelerate does not read them, and goes on with those of a new model
        built = models.MODELS["small"]().state_dict()
        as_built = world.state | {name: built[name] for name in RUNNING}
        assert not torch.equal(theirs[2]["output"], world.expected())
        assert_equal(theirs[2]["output"], world.expected(state=as_built))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_are_cast_and_integers_stay(tmp_path, dtype):
    world = World(tmp_path, "typed")
    for kind in ("safetensors", "bin"):
        run = world.forward(getattr(torch, dtype))
        ours, theirs = world.run(load(world.checkpoint(kind), {"": "cpu"}, dtype=dtype), run)
        assert ours[1]["tensors"] == theirs[1]["tensors"]
        assert ours[1]["tensors"] == {"weight": ["cpu", dtype], "ids": ["cpu", "int64"]}
        assert_equal(world.ours(run), theirs[2]["output"])


@pytest.mark.parametrize("kind", ["safetensors", "shards", "bin"])
def test_an_unexpected_name(tmp_path, kind):
    world = World(tmp_path, "small")
    run = world.forward()
    checkpoint = world.checkpoint(kind, extra=["foo"])
    for peer_map in ({"": "cpu"}, None):  # without a map: where the model is
        step = {**load(checkpoint, {"": "cpu"}), "peer_map": peer_map}
        ours, theirs = world.run(step, run, values=True)
        assert ours[1]["unexpected"] == ["foo"] and ours[1]["missing"] == []
        assert len(ours[1]["log"]) == 1 and "foo" in ours[1]["log"][0]
        assert any("foo" in line for line in theirs[1]["log"])
        assert_equal(world.ours(run), world.expected())
        assert_equal(theirs[2]["output"], world.expected())
        ours, theirs = world.run({**step, "strict": True}, values=True)
        assert "foo" in ours[1]["error"]["message"] and "foo" in theirs[1]["error"]


def test_a_dispatched_model_computes_and_is_not_moved(tmp_path):
    world = World(tmp_path, "small")
    runs = [world.forward(), world.forward()]
    ours, theirs = world.run(
        {"do": "dispatch", "device_map": {"linear1": "disk", "batchnorm": "cpu", "linear2": "cpu"},
         "offload_folder": "offload"}, runs[0], {"do": "move"}, runs[1], values=True)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same_table(mine["tensors"], other["tensors"])
    assert ours[3]["error"]["haul"] and "cannot be moved" in ours[3]["error"]["message"]
    assert "can't move" in theirs[3]["error"]
    for number, run in ((2, runs[0]), (4, runs[1])):
        assert_equal(world.ours(run), world.expected())
        assert_equal(theirs[number]["output"], world.expected())
    assert ours[1]["device_map"] == {"linear1": "disk", "batchnorm": "cpu", "linear2": "cpu"}


def test_cpu_offload_on_the_cpu_leaves_the_model_alone(tmp_path):
    """Accelerate brings each weight from RAM to RAM. Used where it lies it is no offloaded weight:
    in haul such a model is an ordinary one, and can be moved."""
    world = World(tmp_path, "nested")
    runs = [world.forward(), world.forward()]
    ours, theirs = world.run({"do": "cpu_offload"}, runs[0], {"do": "undispatch"}, runs[1],
                             {"do": "move"}, values=True)
    parameters = dict(empty("nested").named_parameters())
    for name, (place, _) in theirs[1]["tensors"].items():
        assert place == ("meta" if name in parameters else "cpu")
        assert ours[1]["tensors"][name][0] == "cpu"
    for number, run in ((2, runs[0]), (4, runs[1])):
        assert_equal(world.ours(run), world.expected())
        assert_equal(theirs[number]["output"], world.expected())
    assert_same_table(ours[3]["tensors"], theirs[3]["tensors"])
    assert ours[5]["error"] is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_modules_that_stay_in_float32(tmp_path, dtype):
    world = World(tmp_path, "nested")
    keep = ["norm", "blocks.1.up", "last.weight", "line"]
    ours, theirs = world.run(load(world.checkpoint(), {"": "cpu"}, dtype=dtype,
                                  keep_in_fp32_modules=keep))
    kept = {name for name, (_, found) in ours[1]["tensors"].items() if found == "float32"}
    assert {"blocks.0.norm.weight", "first.batchnorm.weight", "blocks.1.up.bias",
            "last.weight"} <= kept
    assert not any("linear" in name for name in kept), "'line' is part of a name"
    if dtype == "float16":
        assert ours[1]["tensors"] == theirs[1]["tensors"]
    else:  # Accelerate heeds the list for float16 alone
        assert "float32" not in {found for _, found in theirs[1]["tensors"].values()}
