"""Files that torch.save writes, read by `haul convert` and compared byte for byte."""

import collections
import json
import os
import pickle
import struct
import subprocess
import tarfile
import zipfile

import pytest
import torch

HAUL = os.path.abspath(os.environ.get("HAUL", "build/haul"))

DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float4_e2m1fn_x2: "F4",
}


def convert(path, out):
    return subprocess.run([HAUL, "convert", str(path), str(out)], capture_output=True, text=True)


def read_folder(folder):
    """All tensors of a safetensors folder: name to (dtype, shape, bytes)."""
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        data = file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            body = data[8 + length + begin : 8 + length + end]
            tensors[name] = (entry["dtype"], entry["shape"], body)
    return tensors


def expected(tensor):
    tensor = tensor.detach()
    shape = list(tensor.shape)
    if tensor.dtype == torch.float4_e2m1fn_x2:
        shape[-1] *= 2
    body = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return DTYPES[tensor.dtype], shape, body


def check(tmp_path, value, tensors, **options):
    """Saves the value and wants exactly these tensors from haul."""
    path = tmp_path / "model.bin"
    torch.save(value, path, **options)
    done = convert(path, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert read_folder(tmp_path / "out") == {name: expected(t) for name, t in tensors.items()}
    return done


def check_refused(tmp_path, path, *messages):
    done = convert(path, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.startswith("haul: error: ")
    for message in messages:
        assert message in done.stderr
    assert not list(tmp_path.glob("out/*.safetensors"))
    return done


def raw(dtype, count):
    """Elements with every kind of bits; bools are 0 and 1."""
    if dtype == torch.bool:
        return torch.arange(count) % 3 == 0
    size = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, 256, (count * size,), dtype=torch.uint8, generator=generator).view(dtype)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_dtype(tmp_path, protocol):
    tensors = {str(dtype): raw(dtype, 10) for dtype in DTYPES}
    check(tmp_path, tensors, tensors, pickle_protocol=protocol)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.uint64])
def test_views(tmp_path, dtype):
    base = raw(dtype, 120)
    cube = base.view(4, 5, 6)
    tensors = {
        "slice": base[7:31],
        "step": base[3:100:7],
        "transpose": cube[0].t(),
        "permute": cube.permute(2, 0, 1),
        "corner": cube[1:3, 2:, ::2],
        "expand": base[5:8].unsqueeze(1).expand(3, 4),
        "expand_all": base[9].expand(2, 3, 4),
        "number": base[11],
        "one": cube[2:3, 1:2, 3:4],
        "empty": base[4:4],
        "empty_cube": cube[:, 5:, :],
        "empty_end": base[120:],
        "windows": base.as_strided((10, 8), (3, 1), 6),
        "channels_last": raw(dtype, 120).view(1, 4, 5, 6).to(memory_format=torch.channels_last),
        "base": base,
    }
    check(tmp_path, tensors, tensors)


def test_shared_storages_are_read_from_one_place(tmp_path):
    base = raw(torch.float32, 1000)
    tensors = {f"t{i}": base[i : i + 900] for i in range(20)}
    check(tmp_path, tensors, tensors)
    assert (tmp_path / "model.bin").stat().st_size < 10000


def test_a_packed_4_bit_view(tmp_path):
    tensor = raw(torch.float4_e2m1fn_x2, 24).view(3, 8)
    check(tmp_path, {"a": tensor[1:]}, {"a": tensor[1:]})


def test_empty_tensors(tmp_path):
    tensors = {"a": torch.empty(0), "b": torch.empty(3, 0, 5, dtype=torch.int64), "c": torch.ones(2)}
    check(tmp_path, tensors, tensors)


def test_a_module(tmp_path):
    torch.manual_seed(3)
    layers = torch.nn.TransformerEncoderLayer(16, 2, 32)
    model = torch.nn.Sequential(layers, torch.nn.BatchNorm1d(16), torch.nn.Embedding(7, 16))
    state = model.state_dict()
    assert state._metadata
    check(tmp_path, state, state)


def test_parameters_buffers_and_attributes(tmp_path):
    tagged = torch.arange(4.0)
    tagged.tag = "kept by Python"
    marked = torch.nn.Parameter(torch.arange(5.0))
    marked.is_marked = True
    tensors = {
        "parameter": torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
        "frozen": torch.nn.Parameter(torch.arange(6).view(2, 3), requires_grad=False),
        "half": torch.nn.Parameter(raw(torch.float8_e4m3fn, 6), requires_grad=False),
        "buffer": torch.nn.Buffer(torch.ones(2)),
        "grad": torch.ones(2, requires_grad=True),
        "tagged": tagged,
        "marked": marked,
    }
    check(tmp_path, tensors, tensors)


def test_tied_weights(tmp_path):
    weight = torch.nn.Parameter(torch.ones(3, 4))
    tensors = collections.OrderedDict([("wte.weight", weight), ("lm_head.weight", weight)])
    check(tmp_path, tensors, tensors)


def test_nested_values(tmp_path):
    a, b, c, d = (torch.full((2,), float(i)) for i in range(4))
    value = {
        "blocks": [{"w": a}, {"w": b}],
        "pair": (c, "text", 1.5, None, True, 1 << 100, b"bytes", -3),
        "ordered": collections.OrderedDict(x=d),
        7: {"y": a},
        "size": torch.Size([1, 2]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "set": {1, 2},
        "complex": 1j,
        "counter": collections.Counter("aab"),
        "bytearray": bytearray(b"abc"),
        "long": "x" * 100_000,
        "storage": torch.UntypedStorage(4),
    }
    names = {"blocks.0.w": a, "blocks.1.w": b, "pair.0": c, "ordered.x": d, "7.y": a}
    for protocol in (2, 4):
        folder = tmp_path / str(protocol)
        folder.mkdir()
        check(folder, value, names, pickle_protocol=protocol)


def test_more_items_than_a_pickle_batch(tmp_path):
    tensors = {f"layer.{i}.weight": torch.full((3,), float(i)) for i in range(2500)}
    check(tmp_path, tensors, tensors)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "module"])
def test_weights_of_a_training_checkpoint(tmp_path, key):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    value = {"epoch": 3, key: model.state_dict(), "optimizer": optimizer.state_dict(), "best": torch.tensor(0.5)}
    done = check(tmp_path, value, model.state_dict())
    assert f"the weights are those under '{key}'; left out: 'optimizer', 'best'" in done.stderr


def test_a_lone_tensor_and_a_list(tmp_path):
    tensor = torch.arange(6.0)
    check(tmp_path, tensor, {"tensor": tensor})
    (tmp_path / "list").mkdir()
    check(tmp_path / "list", [tensor, tensor * 2], {"0": tensor, "1": tensor * 2})


def test_other_endings(tmp_path):
    tensor = torch.arange(6.0)
    for ending in ("pt", "pth", "ckpt"):
        torch.save({"w": tensor}, tmp_path / f"model.{ending}")
        done = convert(tmp_path / f"model.{ending}", tmp_path / ending)
        assert done.returncode == 0, done.stderr
        assert read_folder(tmp_path / ending) == {"w": expected(tensor)}


class Payload:
    """Runs code when Python unpickles it."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
def test_code_is_refused_and_not_run(tmp_path, protocol):
    flag = tmp_path / "was_here"
    payloads = {
        "posix.system": Payload(os.system, f"touch {flag}"),
        ".eval": Payload(eval, f"open({str(flag)!r}, 'w')"),
        ".exec": Payload(exec, f"open({str(flag)!r}, 'w')"),
        ".Popen": Payload(subprocess.Popen, ["touch", str(flag)]),
        ".getattr": Payload(getattr, str, "join"),
    }
    for name, payload in payloads.items():
        path = tmp_path / "model.bin"
        torch.save({"w": torch.ones(2), "payload": payload}, path, pickle_protocol=protocol)
        check_refused(tmp_path, path, "refuses ", name, "this file wants to run code")
        assert not flag.exists()
    # The payloads are real: Python runs one.
    torch.save(payloads["posix.system"], path)
    torch.load(path, weights_only=False)
    assert flag.exists()


def test_a_whole_module_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    check_refused(tmp_path, path, "refuses torch.nn.modules.linear.Linear", "state_dict()")


def test_torchscript_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), path)
    check_refused(tmp_path, path, "TorchScript")


def test_old_files_are_refused_with_advice(tmp_path):
    path = tmp_path / "old.bin"
    for protocol in (2, 4):
        torch.save({"w": torch.ones(2)}, path, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
        check_refused(tmp_path, path, "before version 1.6", "torch.save(torch.load(OLD")
    with tarfile.open(path, "w") as tar:
        tar.add(__file__, "storages")
    check_refused(tmp_path, path, "tar archive", "torch.save(torch.load(OLD")
    path.write_bytes(pickle.dumps({"w": 1}))
    check_refused(tmp_path, path, "bare pickle")


@pytest.mark.parametrize(
    "tensor, message",
    [
        (torch.eye(3).to_sparse(), "sparse"),
        (torch.eye(3).to_sparse_csr(), "sparse"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quantised"),
        (torch.empty(3, device="meta"), "meta"),
        (torch.ones(2, dtype=torch.complex128), "complex128"),
        (torch.ones(2, dtype=torch.complex64).conj(), "conjugated"),
    ],
)
def test_other_tensors_are_refused_by_name(tmp_path, tensor, message):
    path = tmp_path / "model.bin"
    torch.save({"first": torch.ones(2), "odd.one": tensor}, path)
    check_refused(tmp_path, path, "tensor 'odd.one'", message)


def test_compressed_archives_are_refused(tmp_path):
    path, packed = tmp_path / "model.bin", tmp_path / "packed.bin"
    torch.save({"w": torch.zeros(1000)}, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    check_refused(tmp_path, packed, "model/byteorder", "deflated", "zip -0")


def test_archives_packed_again_without_compression(tmp_path):
    path, packed = tmp_path / "model.bin", tmp_path / "packed.bin"
    tensors = {"w": raw(torch.float32, 1000), "v": raw(torch.bool, 5)}
    torch.save(tensors, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            with new.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry:
                entry.write(old.read(name))
    done = convert(packed, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert read_folder(tmp_path / "out") == {name: expected(t) for name, t in tensors.items()}


def test_every_cut_file_is_refused(tmp_path):
    path, cut = tmp_path / "model.bin", tmp_path / "cut.bin"
    torch.save({"w": torch.ones(20)}, path)
    data = path.read_bytes()
    for length in range(0, len(data), 97):
        cut.write_bytes(data[:length])
        check_refused(tmp_path, cut, "cut.bin")
