"""Inputs split over real processes: the parts that Accelerate gives, where it gives any."""

import json
import os
import socket
import subprocess
import sys

import pytest

HAUL = os.path.abspath(os.environ.get("HAUL", "build/haul"))
WORKER = os.path.join(os.path.dirname(HAUL), "tests", "distributed", "group", "group_worker")

# Lists and rows of tensors; null where it fails.
PEER = """
import json, os, sys
import torch
from accelerate import PartialState
state = PartialState(cpu=True)
def part(items, padding):
    try:
        with state.split_between_processes(items, apply_padding=padding) as mine:
            return [int(i) for i in mine]
    except Exception as error:
        return None
with open(os.path.join(sys.argv[1], f"peer-{state.process_index}"), "w") as out:
    for total in range(41):
        for padding in (False, True):
            print(json.dumps([part(list(range(total)), padding),
                              part(torch.arange(total), padding) if total else None]), file=out)
state.wait_for_everyone()
state.destroy_process_group()  # whose threads may else be running when the process ends
"""


def together(world, command):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    processes = []
    for rank in range(world):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world),
                           LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                           OMP_NUM_THREADS="1")
        processes.append(subprocess.Popen(command, env=environment))
    assert [process.wait(timeout=300) for process in processes] == [0] * world


@pytest.mark.parametrize("world", [2, 3, 5])
def test_parts_are_the_peers(tmp_path, world):
    together(world, [WORKER, "table", str(tmp_path)])
    together(world, [sys.executable, "-c", PEER, str(tmp_path)])
    failed = []
    for rank in range(world):
        ours = (tmp_path / f"haul-{rank}").read_text().splitlines()
        theirs = (tmp_path / f"peer-{rank}").read_text().splitlines()
        assert len(ours) == len(theirs) == 82
        for i, (mine, line) in enumerate(zip(ours, theirs)):
            for kind, part in zip(("list", "tensor"), json.loads(line)):
                if part is None:
                    failed.append((i // 2, i % 2 == 1, kind))
                else:
                    assert json.loads(mine) == part, f"{i // 2} items, padding {i % 2 == 1}, {kind}, rank {rank}"
    # Nothing to pad with, and no tensor of nothing was tried.
    assert {(total, kind) for total, _, kind in failed} <= {(0, "list"), (0, "tensor")}
