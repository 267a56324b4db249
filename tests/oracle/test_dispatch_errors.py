"""What haul and Accelerate say of maps and checkpoints that do not fit a model."""

import pytest
import torch
from safetensors.torch import save_file

import dispatch_models as models
from dispatch_sides import World, assert_equal, assert_same_table

CPU = {"linear1": "cpu", "batchnorm": "cpu", "linear2": "cpu"}


def load(checkpoint, device_map, **options):
    return {"do": "load", "checkpoint": checkpoint, "device_map": device_map,
            "offload_folder": "offload", **options}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, "small")


def test_a_map_must_cover_the_model(world):
    step = load(world.checkpoint(), {"linear1": "cpu", "linear2": "cpu"})
    ours, theirs = world.run(step)
    assert "batchnorm.weight, batchnorm.bias" in ours[1]["error"]["message"]
    assert ours[1]["tensors"] == ours[0]["tensors"]
    assert "batchnorm" in theirs[1]["error"]
    dispatch = {"do": "dispatch", "device_map": {"linear1": "cpu", "linear2": "disk"},
                "offload_folder": "offload"}
    ours, theirs = world.run(dispatch, values=True)
    for name in ("batchnorm.weight", "batchnorm.running_mean"):
        assert name in ours[1]["error"]["message"] and name in theirs[1]["error"]


def test_a_map_names_nothing_else(world):
    """Accelerate says that a name is unknown and goes on; a typing mistake would go unnoticed."""
    ours, theirs = world.run(load(world.checkpoint(), CPU | {"linear3": "cpu", "x.y": "cpu"}))
    assert "'linear3'" in ours[1]["error"]["message"]
    assert theirs[1]["error"] is None
    assert any("linear3" in line and "x.y" in line for line in theirs[1]["log"])


def test_a_map_of_tensors(world):
    """It works, though Accelerate says that these are no modules."""
    device_map = {name: "cpu" for name in world.state}
    run = world.forward()
    ours, theirs = world.run(load(world.checkpoint(), device_map), run)
    assert_same_table(ours[1]["tensors"], theirs[1]["tensors"])
    assert ours[1]["log"] == [] and any("do not match" in line for line in theirs[1]["log"])
    assert_equal(world.ours(run), theirs[2]["output"])
    # On disk, Accelerate never brings it back, and may compute with nothing.
    run = world.forward()
    ours, theirs = world.run(load(world.checkpoint(), device_map | {"linear1.weight": "disk"}), run)
    assert ours[1]["tensors"]["linear1.weight"][0] == "away"
    assert_equal(world.ours(run), world.expected())
    assert theirs[2]["error"] or not torch.equal(theirs[2]["output"], world.expected())


def test_the_longest_name_decides(world):
    """Accelerate loads such a map and cannot dispatch it."""
    run = world.forward()
    ours, theirs = world.run(load(world.checkpoint(), {"": "cpu", "linear1": "disk"}), run)
    assert_same_table(ours[1]["tensors"], theirs[1]["loaded"])
    assert "on the meta device" in theirs[1]["error"]
    assert_equal(world.ours(run), world.expected())


def test_everything_on_disk(world):
    """Accelerate asks safetensors for the device "disk"; from a pickle it can do it."""
    run = world.forward()
    ours, theirs = world.run(load(world.checkpoint(), {"": "disk"}), run)
    assert "device disk is invalid" in theirs[1]["error"]
    assert_equal(world.ours(run), world.expected())
    run = world.forward()
    ours, theirs = world.run(load(world.checkpoint("bin"), {"": "disk"}, offload_buffers=True), run)
    assert {place for place, _ in ours[1]["tensors"].values()} == {"away"}
    assert_same_table(ours[2]["tensors"], theirs[2]["tensors"])
    assert_equal(world.ours(run), theirs[2]["output"])


def test_a_folder_is_needed_where_no_file_holds_the_weights(world):
    """Accelerate always needs one; haul only for what no file holds as it is used."""
    mixed = CPU | {"linear1": "disk"}
    for kind, options, needed in (("safetensors", {}, False), ("bin", {}, False),
                                  ("safetensors", {"dtype": "float16"}, True)):
        step = load(world.checkpoint(kind), mixed, **options)
        del step["offload_folder"]
        ours, theirs = world.run(step)
        assert "offload_folder" in theirs[1]["error"]
        assert (ours[1]["error"] is not None) == needed
        if needed:
            assert "'linear1.weight'" in ours[1]["error"]["message"]
            assert ours[1]["tensors"] == ours[0]["tensors"]
    dispatch = {"do": "dispatch", "device_map": mixed}
    ours, theirs = world.run(dispatch, values=True)
    assert "linear1" in ours[1]["error"]["message"] and "linear1" in theirs[1]["error"]


@pytest.mark.parametrize("device_map", [CPU, CPU | {"linear2": "disk"}])
def test_all_shapes_that_differ(world, device_map):
    wrong = dict(world.state)
    wrong["linear1.weight"] = torch.ones(4, 9)
    wrong["batchnorm.running_mean"] = torch.ones(7)
    save_file(wrong, world.path / "wrong.safetensors", {"format": "pt"})
    ours, theirs = world.run(load(world.path / "wrong.safetensors", device_map))
    assert "'linear1.weight': [4, 3] in the model, [4, 9] in the checkpoint" \
        in ours[1]["error"]["message"]
    assert "'batchnorm.running_mean': [4] in the model, [7]" in ours[1]["error"]["message"]
    assert ours[1]["tensors"] == ours[0]["tensors"], "nothing was read"
    assert "shape" in theirs[1]["error"]  # the first one alone, and half of the model is loaded
    assert theirs[1]["tensors"] != theirs[0]["tensors"]


@pytest.mark.parametrize("device_map", [CPU, CPU | {"linear2": "disk"}])
def test_weights_that_are_missing(world, device_map):
    """Accelerate does not look: an empty weight is found by the first that needs it."""
    checkpoint = world.checkpoint(without=["linear2.bias", "linear1.weight"])
    run = world.forward()
    ours, theirs = world.run(load(checkpoint, device_map), run)
    assert ours[1]["error"]["message"].endswith("2: linear1.weight, linear2.bias")
    assert not any("linear2.bias" in line for line in theirs[1]["log"])
    assert theirs[1]["error"] or theirs[2]["error"]
    ours, theirs = world.run(load(checkpoint, device_map, allow_missing=True))
    assert ours[1]["missing"] == ["linear1.weight", "linear2.bias"]
    assert ours[1]["tensors"]["linear1.weight"][0] == "meta"
    assert_same_table(ours[1]["tensors"], theirs[1]["tensors"])


@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("place", ["cpu", "disk"])
def test_missing_values_that_the_model_has_stay(world, place, dtype):
    """Buffers of an empty model have their values, and keep them with their dtype."""
    name = "batchnorm.running_mean"
    checkpoint = world.checkpoint(without=[name])
    run = world.forward()
    options = {"dtype": dtype} if dtype else {}
    ours, theirs = world.run(load(checkpoint, CPU | {"batchnorm": place}, **options), run)
    assert ours[1]["missing"] == [name] and len(ours[1]["log"]) == 1
    assert theirs[1]["error"] is None and not any(name in line for line in theirs[1]["log"])
    assert ours[1]["tensors"][name] == theirs[1]["tensors"][name] == ["cpu", "float32"]
    if dtype is None:
        assert_equal(world.ours(run), world.expected(state=world.state | {name: torch.zeros(4)}))
    if place == "cpu":
        assert_same_table(ours[1]["tensors"], theirs[1]["tensors"])
        if dtype is None:
            assert_equal(world.ours(run), theirs[2]["output"])


def test_safetensors_come_before_pickles(world):
    """In Accelerate the pickle wins, whatever lies beside it."""
    world.checkpoint("bin")
    pickled = world.expected()
    world.state = models.state_of("small", 2)
    world.checkpoint("safetensors")
    run = world.forward()
    ours, theirs = world.run(load(world.path, CPU), run)
    assert_equal(world.ours(run), world.expected())
    assert_equal(theirs[2]["output"], pickled)
    assert len(ours[1]["log"]) == 1 and "pytorch_model.bin" in ours[1]["log"][0]


def test_another_dtype_in_the_file(world):
    """Without a dtype both keep the model's; on disk Accelerate takes the file's."""
    checkpoint = world.checkpoint(dtype=torch.float64)
    run = world.forward()
    ours, theirs = world.run(load(checkpoint, CPU), run)
    assert_same_table(ours[1]["tensors"], theirs[1]["tensors"])
    assert_equal(world.ours(run), theirs[2]["output"])
    run = world.forward()
    ours, theirs = world.run(load(checkpoint, CPU | {"linear1": "disk"}), run)
    assert ours[1]["tensors"]["linear1.weight"] == ["away", "float32"]
    assert theirs[1]["tensors"]["linear1.weight"] == ["meta", "float64"]
    assert_equal(world.ours(run), world.expected())
    assert "dtype" in theirs[2]["error"]


# Tensors with several names


def test_a_map_that_splits_a_tied_weight(tmp_path):
    """Both say so. It lies where its first name does."""
    world = World(tmp_path, "tied")
    for first, second in (("cpu", "disk"), ("disk", "cpu")):
        run = world.forward()
        ours, theirs = world.run(load(world.checkpoint(), {"encoder": first, "middle": "cpu",
                                                           "decoder": second}), run)
        assert len(ours[1]["log"]) == 1
        assert "encoder.weight, decoder.weight, which are one tensor" in ours[1]["log"][0]
        assert any("Tied parameters are on different devices" in line for line in theirs[1]["log"])
        place = {"disk": "away"}.get(first, first)
        assert ours[1]["tensors"]["encoder.weight"][0] == place
        assert ours[1]["tensors"]["decoder.weight"][0] == place
        assert_equal(world.ours(run), world.expected())


@pytest.mark.parametrize("place", ["cpu", "disk"])
def test_a_tied_weight_is_stored_under_one_name(tmp_path, place):
    """From disk, Accelerate looks for the other name and finds no file."""
    world = World(tmp_path, "tied")
    run = world.forward()
    checkpoint = world.checkpoint("bin", without=["decoder.weight"])
    ours, theirs = world.run(load(checkpoint, {"encoder": place, "middle": "cpu",
                                               "decoder": place}), run)
    assert ours[1]["missing"] == []
    assert_same_table(ours[1]["tensors"], theirs[1]["tensors"])
    assert_equal(world.ours(run), world.expected())
    if place == "cpu":
        assert_equal(theirs[2]["output"], world.expected())
    else:
        assert "KeyError: 'decoder.weight'" in theirs[2]["error"]
