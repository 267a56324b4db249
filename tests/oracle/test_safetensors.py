"""safetensors files and offload folders against the libraries that own them, both ways."""

import glob
import json
import os
import subprocess

import numpy as np
import pytest
import torch
from accelerate.utils import OffloadedWeightsLoader, offload_state_dict
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

HAUL = os.environ.get("HAUL", "build/haul")


def convert(source, target, *flags):
    result = subprocess.run(
        [HAUL, "convert", str(source), str(target), "--json", *flags], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def load_folder(folder):
    tensors = {}
    for path in sorted(glob.glob(f"{folder}/*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def raw(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.ndim else tensor.reshape(1).view(torch.uint8)


def assert_same(got, expected):
    assert set(got) == set(expected)
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype, name
        assert got[name].shape == tensor.shape, name
        assert torch.equal(raw(got[name]), raw(tensor)), name


TORCH_DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64,
]  # fmt: skip


def any_tensor(dtype, shape, generator):
    count = int(np.prod(shape, dtype=np.int64))
    width = torch.empty((), dtype=dtype).element_size()
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (count * width,), generator=generator)
    return data.to(torch.uint8).view(dtype).reshape(shape)


def every_dtype():
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for dtype in TORCH_DTYPES:
        for shape in [(), (1,), (0,), (3, 0, 2), (5,), (3, 7), (2, 3, 4)]:
            name = f"{str(dtype)[6:]}.{'x'.join(map(str, shape)) or 'scalar'}"
            tensors[name] = any_tensor(dtype, shape, generator)
    tensors["größe/\"quoted\"\\\n"] = torch.arange(3)
    return tensors


def test_every_dtype_and_shape_survives_the_round_trip(tmp_path):
    tensors = every_dtype()
    source = tmp_path / "in.safetensors"
    save_file(tensors, source, metadata={"format": "pt", "note": "é \" \\ \n"})
    result = convert(source, tmp_path / "out")
    assert result["format"] == "safetensors"
    assert result["tensors"] == len(tensors)
    assert_same(load_folder(tmp_path / "out"), tensors)
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "note": "é \" \\ \n"}


def test_types_smaller_than_a_byte_survive(tmp_path):
    # torch cannot hold these one by one; the library writes them from bytes.
    data = {
        "f4": {"dtype": "F4", "shape": [3, 4], "data": bytes(range(6))},
        "f6a": {"dtype": "F6_E2M3", "shape": [4], "data": bytes(range(3))},
        "f6b": {"dtype": "F6_E3M2", "shape": [2, 4], "data": bytes(range(6))},
    }
    source = tmp_path / "in.safetensors"
    header, blob = {}, b""
    for name, entry in data.items():
        header[name] = {"dtype": entry["dtype"], "shape": entry["shape"],
                        "data_offsets": [len(blob), len(blob) + len(entry["data"])]}  # fmt: skip
        blob += entry["data"]
    text = json.dumps(header).encode()
    source.write_bytes(len(text).to_bytes(8, "little") + text + blob)
    with safe_open(source, "np") as file:
        assert sorted(file.keys()) == sorted(data)
    convert(source, tmp_path / "out")
    written = (tmp_path / "out" / "model.safetensors").read_bytes()
    size = int.from_bytes(written[:8], "little")
    header = json.loads(written[8 : 8 + size])
    with safe_open(tmp_path / "out" / "model.safetensors", "np") as file:
        assert sorted(file.keys()) == sorted(data)
    for name, entry in data.items():
        begin, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == entry["dtype"] and header[name]["shape"] == entry["shape"]
        assert written[8 + size + begin : 8 + size + end] == entry["data"]


def test_data_is_aligned_to_blocks_and_elements(tmp_path):
    save_file(every_dtype(), tmp_path / "in.safetensors")
    convert(tmp_path / "in.safetensors", tmp_path / "out")
    written = (tmp_path / "out" / "model.safetensors").read_bytes()
    size = int.from_bytes(written[:8], "little")
    assert (8 + size) % 512 == 0
    header = json.loads(written[8 : 8 + size])
    widths = {name: t.element_size() for name, t in every_dtype().items()}
    for name, width in widths.items():
        assert header[name]["data_offsets"][0] % width == 0, name


@pytest.mark.parametrize("limit", [1, 100, 1000, 4096, 10**9])
def test_shards_and_index_are_those_that_the_hub_library_plans(tmp_path, limit):
    generator = torch.Generator().manual_seed(limit)
    tensors = {}
    for i in range(40):
        size = int(torch.randint(0, 200, (), generator=generator))
        tensors[f"model.layers.{i}.weight"] = torch.randn(size, 5, generator=generator)
    for i, (name, tensor) in enumerate(tensors.items()):
        if i % 3 == 0:
            tensors[name] = tensor.to(torch.bfloat16)
    torch.save(tensors, tmp_path / "in.bin")  # keeps the order
    plan = split_torch_state_dict_into_shards(
        tensors, filename_pattern="model{suffix}.safetensors", max_shard_size=limit
    )
    convert(tmp_path / "in.bin", tmp_path / "out", "--max-shard-size", str(limit))
    files = {os.path.basename(p) for p in glob.glob(f"{tmp_path}/out/*.safetensors")}
    assert files == set(plan.filename_to_tensors)
    index_path = tmp_path / "out" / "model.safetensors.index.json"
    assert index_path.exists() == plan.is_sharded
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        assert index_path.read_text() == json.dumps(index, indent=2, sort_keys=True) + "\n"
    for file, names in plan.filename_to_tensors.items():
        assert set(load_file(tmp_path / "out" / file)) == set(names)
    assert_same(load_folder(tmp_path / "out"), tensors)
    # And what was sharded is read as one.
    convert(tmp_path / "out", tmp_path / "again")
    assert_same(load_folder(tmp_path / "again"), tensors)


def assert_nearest_even(got, values):
    def distance(words):
        return (words.view(got.dtype).double() - values).abs()

    words = got.view(torch.int16)
    for neighbour in (words - 1, words + 1):
        closer = distance(words) < distance(neighbour)
        tie = distance(words) == distance(neighbour)
        assert torch.all(closer | (tie & (words % 2 == 0)))


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_casts_are_torchs(tmp_path, target):
    generator = torch.Generator().manual_seed(3)
    words = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    bits32 = torch.randint(-(2**31), 2**31, (200_000,), generator=generator).to(torch.int32)
    tensors = {
        "f16": words.view(torch.float16),
        "bf16": words.clone().view(torch.bfloat16),
        "f32": bits32.view(torch.float32),
        "f32.near": torch.randn(100_000, generator=generator) * 1e-6,
        "f64": torch.randn(100_000, generator=generator, dtype=torch.float64) * 1e3,
        "i64": torch.arange(7),
        "fp8": words.view(torch.uint8)[:256].clone().view(torch.float8_e4m3fn),
    }
    save_file(tensors, tmp_path / "in.safetensors")
    convert(tmp_path / "in.safetensors", tmp_path / "out", "--dtype", str(target))
    got = load_folder(tmp_path / "out")
    for name, tensor in tensors.items():
        cast = name not in ("i64", "fp8")
        expected = tensor.to(target) if cast else tensor
        assert got[name].dtype == expected.dtype
        if not cast:
            assert torch.equal(raw(got[name]), raw(expected))
            continue
        if name == "f64" and target.itemsize == 2:  # torch rounds these twice on some machines
            assert_nearest_even(got[name], tensor)
            continue
        nan = expected.isnan()
        assert torch.equal(got[name].isnan(), nan), name
        assert torch.equal(raw(got[name][~nan]), raw(expected[~nan])), name


def test_torch_views_and_shared_storages_are_written_whole(tmp_path):
    torch.manual_seed(0)
    base = torch.randn(64, 48)
    tensors = {
        "base": base,
        "alias": base,
        "transposed": base.t(),
        "slice": base[3:50:4, ::5],
        "row": base[7],
        "expanded": base[:1].expand(9, 48),
        "permuted": torch.randn(3, 4, 5).permute(2, 0, 1),
    }
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    convert(tmp_path / "pytorch_model.bin", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), tensors)



def test_an_offload_folder_of_accelerate_is_read(tmp_path):
    generator = torch.Generator().manual_seed(5)
    tensors = {}
    for dtype in TORCH_DTYPES:
        for shape in [(), (4,), (3, 5), (0, 2)]:
            tensors[f"{str(dtype)[6:]}.{len(shape)}"] = any_tensor(dtype, shape, generator)
    offload_state_dict(tmp_path / "offload", tensors)
    result = convert(tmp_path / "offload", tmp_path / "out")
    assert result["format"] == "offload folder"
    assert_same(load_folder(tmp_path / "out"), tensors)


def test_offload_entries_that_point_into_safetensors_are_read(tmp_path):
    weights = {"inside": torch.randn(4, 3), "other": torch.arange(5)}
    save_file(weights, tmp_path / "w.safetensors")
    offload_state_dict(tmp_path / "offload", {"dat": torch.ones(2)})
    index = json.loads((tmp_path / "offload" / "index.json").read_text())
    index["outside"] = {"safetensors_file": str(tmp_path / "w.safetensors"), "weight_name": "inside", "dtype": "float32"}
    index["other"] = {"safetensors_file": str(tmp_path / "w.safetensors")}
    (tmp_path / "offload" / "index.json").write_text(json.dumps(index))
    loader = OffloadedWeightsLoader(save_folder=str(tmp_path / "offload"))
    expected = {name: loader[name] for name in loader}
    convert(tmp_path / "offload", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), expected)


def test_accelerate_reads_the_offload_folder_that_haul_writes(tmp_path):
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for dtype in TORCH_DTYPES:
        for shape in [(), (4,), (3, 5), (0, 2)]:
            tensors[f"{str(dtype)[6:]}.{len(shape)}"] = any_tensor(dtype, shape, generator)
    save_file(tensors, tmp_path / "in.safetensors")
    writer = os.path.join(os.path.dirname(HAUL), "tests/support/write_offload_folder")
    subprocess.run([writer, tmp_path / "in.safetensors", tmp_path / "offload"], check=True)
    index = json.loads((tmp_path / "offload" / "index.json").read_text())
    offload_state_dict(tmp_path / "peer", tensors)
    peer = json.loads((tmp_path / "peer" / "index.json").read_text())
    kinds = set()
    for name, entry in index.items():
        kinds.add("safetensors_file" in entry)
        if "safetensors_file" not in entry:
            assert entry == peer[name]
            written = (tmp_path / "offload" / f"{name}.dat").read_bytes()
            assert written == (tmp_path / "peer" / f"{name}.dat").read_bytes(), name
    assert kinds == {True, False}
    # Accelerate itself cannot load unsigned scalars of 16 bits and more.
    loader = OffloadedWeightsLoader(save_folder=str(tmp_path / "offload"))
    loadable = {name: t for name, t in tensors.items() if t.ndim or t.dtype.is_signed}
    assert set(loader) == set(tensors)
    assert_same({name: loader[name] for name in loadable}, loadable)


def broken_files():
    def file(header, data=b"", size=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return (len(text) if size is None else size).to_bytes(8, "little") + text + data

    one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    return {
        "empty": b"",
        "short": b"1234567",
        "long header": file({}, size=100_000_001),
        "cut header": file({}, size=9),
        "array": file(b"[]"),
        "not json": file(b"{x}"),
        "not utf-8": file(b'{"\xff":{}}'),
        "metadata": file({"__metadata__": {"a": 1}}),
        "dtype": file({"w": {**one, "dtype": "F3"}}, b"1234"),
        "no shape": file({"w": {"dtype": "F32", "data_offsets": [0, 4]}}, b"1234"),
        "hole": file({"w": {**one, "data_offsets": [4, 8]}}, b"12345678"),
        "overlap": file({"w": one, "v": {**one, "data_offsets": [2, 6]}}, b"123456"),
        "backwards": file({"w": {**one, "data_offsets": [4, 0]}}, b"1234"),
        "count": file({"w": {**one, "shape": [2]}}, b"1234"),
        "f4": file({"w": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, b"12"),
        "overflow": file({"w": {**one, "shape": [2**62, 2**62]}}, b"1234"),
        "more data": file({"w": one}, b"12345"),
        "less data": file({"w": one}, b"123"),
    }


@pytest.mark.parametrize("name", broken_files())
def test_what_the_library_refuses_is_refused(tmp_path, name):
    path = tmp_path / "in.safetensors"
    path.write_bytes(broken_files()[name])
    with pytest.raises((SafetensorError, OSError, ValueError)):
        safe_open(path, "np").__enter__()
    result = subprocess.run([HAUL, "convert", path, tmp_path / "out"], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("haul: error: ") and "in.safetensors" in result.stderr
    assert not (tmp_path / "out").exists()
