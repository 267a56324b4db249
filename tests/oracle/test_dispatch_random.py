"""haul's dispatch beside Accelerate's on the CPU, over random maps, checkpoints and options."""

import random

import pytest
import torch

import dispatch_models as models
import dispatch_sides as sides

COUNT = 80
TIED = {"twice": ("shared", "again"), "tied": ("encoder", "decoder")}


def random_map(rng, module, prefix=""):
    """Modules on the CPU or on disk, some of them split; tensors beside split modules on the CPU,
    because Accelerate does not bring back one that is offloaded alone."""
    entries = {}
    for name, _ in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        entries[prefix + name] = "cpu"
    for name, child in module.named_children():
        if any(child.children()) and rng.random() < 0.6:
            entries |= random_map(rng, child, f"{prefix}{name}.")
        else:
            entries[prefix + name] = rng.choice(["cpu", "disk"])
    return entries


class Case:
    def __init__(self, seed, path):
        self.rng = rng = random.Random(seed)
        self.world = world = sides.World(path, rng.choice(list(models.MODELS)), seed)
        model = models.MODELS[world.model]()
        self.map = {"": rng.choice(["cpu", "disk"])}
        if rng.random() < 0.85:
            self.map = random_map(rng, model)
        if world.model in TIED and "" not in self.map:  # split ones have a test of their own
            first, second = TIED[world.model]
            self.map.pop(second, None)  # "again" is no child of its own there
            self.map[second] = self.map[first]
        self.offload_buffers = rng.random() < 0.5
        self.dtype, self.strict, self.extra, self.missing = None, False, [], []
        self.loads = rng.random() < 0.7
        self.buffers = dict(model.named_buffers())
        step = {"device_map": self.map, "offload_folder": "offload",
                "offload_buffers": self.offload_buffers}
        self.place = self.load(step, model) if self.loads else {"do": "dispatch", **step}
        self.first, self.second, self.third = (world.forward(self.dtype) for _ in range(3))
        steps = [self.place, self.first]
        if self.offloaded():
            steps += [{"do": "move"}, self.second, {"do": "undispatch"}, self.third]
        else:
            steps += [{"do": "move"}]
        self.scenario = world.scenario(*steps, values=not self.loads)

    def load(self, step, model):
        rng = self.rng
        self.dtype = rng.choice([None, torch.float16, torch.bfloat16])
        self.strict = rng.random() < 0.2
        self.extra = ["foo.weight", "bar"] if rng.random() < 0.25 else []
        if rng.random() < 0.2:
            alone = [name for name, _ in model.named_parameters()
                     if not name.startswith(TIED.get(self.world.model, ()))]
            self.missing = rng.sample(alone, min(len(alone), 2))
        self.kind = rng.choice(["safetensors", "shards", "bin"])
        checkpoint = self.world.checkpoint(self.kind, self.missing, self.extra)
        return {"do": "load", "checkpoint": checkpoint, "strict": self.strict,
                "way": rng.choice(["one call", "two calls"]), **step,
                **({"dtype": str(self.dtype)[6:]} if self.dtype else {})}

    def offloaded(self):
        return "disk" in self.map.values()

    def device(self, name):
        while name not in self.map:
            name = name.rpartition(".")[0]
        return self.map[name]

    def refused(self):
        """The names that haul must list."""
        if self.strict and self.extra:
            return self.extra
        return self.missing

    def peer_cannot_place(self):
        """What Accelerate cannot do: read safetensors for a map of disk alone; offload the root."""
        only_disk = set(self.map.values()) == {"disk"}
        if self.loads:
            return only_disk and self.kind != "bin"
        return self.map.get("") == "disk"

    def not_loaded(self):
        """Buffers that Accelerate leaves as they were built: on disk, and not to be offloaded."""
        if not self.loads or self.offload_buffers:
            return []
        return [name for name in self.buffers if self.device(name) == "disk"]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return [Case(seed, tmp_path_factory.mktemp("case")) for seed in range(COUNT)]


def check_refused(case, ours, theirs):
    message = ours[1]["error"]["message"]
    assert ours[1]["error"]["haul"]
    assert message.endswith(f"{len(case.refused())}: " + ", ".join(
        sorted(case.refused(), key=lambda name: message.index(name))))
    assert ours[1]["tensors"] == ours[0]["tensors"], "it is as it was"
    # Accelerate does not look for missing names: it fails later, here or at the first forward.
    assert theirs[1]["error"] or theirs[2]["error"]
    if case.strict and case.extra:
        assert theirs[1]["error"]


def check_said(case, ours, theirs):
    unexpected = [line for line in ours["log"] if "names that the model does not have" in line]
    assert ours["log"] == unexpected
    assert len(unexpected) == bool(case.extra)
    assert all(name in unexpected[0] for name in case.extra)
    if not case.peer_cannot_place():
        assert sum("were not used when" in line for line in theirs["log"]) == bool(case.extra)


@pytest.mark.parametrize("seed", range(COUNT))
def test_tables_and_outputs_are_the_same(cases, seed):
    case = cases[seed]
    world = case.world
    ours = sides.haul(case.scenario, world.path / "haul")
    theirs = sides.Peer(case.scenario, world.path / "peer").seen
    if case.refused():
        check_refused(case, ours, theirs)
        return
    check_said(case, ours[1], theirs[1])

    expected = world.expected(case.dtype)
    assert ours[1]["error"] is None and ours[2]["error"] is None
    sides.assert_equal(world.ours(case.first), expected)
    for name, (place, dtype) in ours[1]["tensors"].items():
        goes = case.device(name) == "disk" and (case.offload_buffers or name not in case.buffers)
        assert place == ("away" if goes else "cpu"), name
    assert ours[2]["tensors"] == ours[1]["tensors"], "a forward changes nothing"

    if case.offloaded():
        assert "cannot be moved" in ours[3]["error"]["message"]
        assert ours[3]["tensors"] == ours[1]["tensors"]
        sides.assert_equal(world.ours(case.second), expected)
        assert {place for place, _ in ours[5]["tensors"].values()} == {"cpu"}
        sides.assert_equal(world.ours(case.third), expected)
    else:
        assert ours[3]["error"] is None and theirs[3]["error"] is None
        for name in world.state:
            if world.state[name].is_floating_point():  # libtorch's `to` casts integers as well
                assert ours[3]["tensors"][name] == theirs[3]["tensors"][name] == ["cpu", "float64"]

    if case.peer_cannot_place():
        assert theirs[1]["error"]
        return
    assert theirs[1]["error"] is None
    lost = case.not_loaded()
    but = {name: (["cpu", ours[1]["tensors"][name][1]], ["cpu", "float32"]) for name in lost
           if world.state[name].is_floating_point()}
    for table in ("loaded", "tensors"):
        if table in theirs[1]:
            sides.assert_same_table(ours[1]["tensors"], theirs[1][table], but)
    if not lost:
        sides.assert_equal(theirs[2]["output"], expected)
    elif case.dtype is None:
        built = models.MODELS[world.model]().state_dict()
        sides.assert_equal(theirs[2]["output"],
                           world.expected(state=world.state | {name: built[name] for name in lost}))
    else:
        return  # half of its batch norm is in another dtype
    sides.assert_same_table(ours[2]["tensors"], theirs[2]["tensors"], but)
    if case.offloaded():
        assert "can't move" in theirs[3]["error"]
        sides.assert_same_table(ours[3]["tensors"], theirs[3]["tensors"], but)
        # Without its hooks Accelerate's model is empty where it was so before it was loaded.
        left = {place for place, _ in theirs[5]["tensors"].values()}
        assert left == ({"cpu", "meta"} if case.loads else {"cpu"})


def test_the_cases_are_of_every_kind(cases):
    runs = [case for case in cases if not case.refused() and not case.peer_cannot_place()]
    assert {case.world.model for case in runs} == set(models.MODELS)
    assert sum(case.offloaded() for case in runs) >= 30
    assert sum(bool(case.not_loaded()) for case in runs) >= 3
    assert sum(bool(case.refused()) for case in cases) >= 5
    dtypes = {case.dtype for case in runs if case.offloaded()}
    assert dtypes == {None, torch.float16, torch.bfloat16}
