"""Writes the seeds of the fuzzers zip and pickle with torch.save; run it in this folder."""

import collections
import io
import os
import zipfile

import torch

floats = torch.arange(6, dtype=torch.float32)
CASES = {
    "views": ({"a": floats.view(2, 3).t(), "b": floats[1:4], "c": torch.empty(0)}, 2),
    "nested": ({"model": collections.OrderedDict(w=floats), "optimizer": {0: [(floats, 1.5, None)]}}, 2),
    "parameter": ({"p": torch.nn.Parameter(floats), "size": torch.Size([2]), "bytes": b"x"}, 2),
    "untyped": ({"f8": torch.zeros(24).to(torch.float8_e4m3fn), "set": {1, 2}, "big": 1 << 99}, 4),
    "sparse": ({"s": floats.to_sparse()}, 2),
}

for name, (value, protocol) in CASES.items():
    buffer = io.BytesIO()
    torch.save(value, buffer, pickle_protocol=protocol)
    archive = zipfile.ZipFile(buffer)
    pickle = archive.read("archive/data.pkl")
    with open(os.path.join("pickle", name), "wb") as file:
        file.write(pickle)
    if name in ("views", "nested"):
        # The same without torch's padding, which only slows a fuzzer down.
        with zipfile.ZipFile(os.path.join("zip", name), "w") as small:
            for entry in archive.namelist():
                if "/." not in entry:
                    small.writestr(zipfile.ZipInfo(entry), archive.read(entry))
with open(os.path.join("zip", "untouched"), "wb") as file:
    torch.save(floats, file)
