"""`haul launch` and `haul config` beside `accelerate launch` and its config files."""

import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.config.default import write_basic_config

HAUL = pathlib.Path(os.environ.get("HAUL", "build/haul")).resolve()

SCRIPT = """
import json, os, sys
path = os.path.join(sys.argv[1], os.environ.get("RANK", "0") + ".json")
with open(path, "w") as file:
    json.dump({"env": dict(os.environ), "argv": sys.argv[2:]}, file)
"""
# Differ from launch to launch, or are about the launcher's own store and files.
ASIDE = {"MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
         "TORCHELASTIC_SIGNALS_TO_HANDLE", "LC_CTYPE", "_", "SHLVL", "OLDPWD", "PWD",
         # What Python, not the launcher, puts there when it is imported.
         "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "CRC32C_SW_MODE", "TORCHINDUCTOR_CACHE_DIR"}


# The peer's processes meet at one port of the machine: one test at a time.
pytestmark = pytest.mark.xdist_group("launch")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_EXEC", sys.executable)
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def environments(tmp_path, launcher, flags):
    """What each rank found, without what was there before."""
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    out.mkdir()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([*launcher, *flags, script, out, "--an_argument", "x"], timeout=120,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {}
    for path in out.iterdir():
        content = json.loads(path.read_text())
        assert content["argv"] == ["--an_argument", "x"]
        found[int(path.stem)] = {name: value for name, value in content["env"].items()
                                 if os.environ.get(name) != value and name not in ASIDE}
    return found


ACCELERATE = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]


def test_ranks_find_what_the_peer_gives_them(environment):
    flags = ["--multi-gpu", "--num_processes=3", "--mixed_precision", "bf16", "--gpu_ids", "0,1,2",
             "--max_restarts", "3", "--debug", "--num-cpu-threads-per-process=5",
             "--enable_cpu_affinity"]
    theirs = environments(environment, ACCELERATE, flags)
    ours = environments(environment, [HAUL, "launch"], flags)
    assert ours.keys() == theirs.keys()
    for rank, expected in theirs.items():
        expected = {n: v for n, v in expected.items() if not n.startswith("PET_")}
        found = {name: ours[rank].get(name) for name in expected}
        assert found == expected
        # The peer tells this of one process alone.
        assert ours[rank].keys() - expected.keys() == {"ACCELERATE_USE_CPU"}


def test_one_process_on_the_cpu_finds_what_the_peer_gives_it(environment):
    flags = ["--cpu", "--num_processes", "1", "--mixed_precision", "no"]
    theirs = environments(environment, ACCELERATE, flags)[0]
    ours = environments(environment, [HAUL, "launch"], flags)[0]
    assert {name: ours.get(name) for name in theirs} == theirs


def test_a_config_of_the_peer_decides_alike(environment):
    config = environment / "config.yaml"
    config.write_text(yaml.safe_dump({
        "compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU",
        "num_processes": 2, "mixed_precision": "fp16", "gpu_ids": "0,1", "num_machines": 1,
        "machine_rank": 0, "use_cpu": False, "debug": True,
        "dynamo_config": {"dynamo_backend": "EAGER", "dynamo_use_dynamic": True}}))
    flags = ["--config_file", str(config)]
    theirs = environments(environment, ACCELERATE, flags)
    ours = environments(environment, [HAUL, "launch"], flags)
    for rank, expected in theirs.items():
        expected = {n: v for n, v in expected.items() if not n.startswith("PET_")}
        assert {name: ours[rank].get(name) for name in expected} == expected


def run(*arguments):
    return subprocess.run([HAUL, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def as_dict(path):
    """A file as the peer reads it."""
    return load_config_from_file(str(path)).to_dict()


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_a_basic_config_of_the_peer_survives_an_update(environment, suffix, precision):
    path = environment / f"basic.{suffix}"
    assert write_basic_config(mixed_precision=precision, save_location=str(path))
    before = as_dict(path)
    done = run("config", "update", "--config_file", path)
    assert done.returncode == 0, done.stderr
    assert as_dict(path) == before


def test_sections_of_the_peer_survive_an_update(environment):
    path = environment / "fsdp.yaml"
    path.write_text(yaml.safe_dump({
        "compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": 4,
        "mixed_precision": "bf16", "use_cpu": False, "debug": False, "downcast_bf16": "no",
        "main_process_ip": "10.1.2.3", "main_process_port": 29501, "gpu_ids": "all",
        "tpu_env": [], "commands": ["a: b", "- c", "#d", "é\u2028\x85\t"],
        "fsdp_config": {"fsdp_min_num_params": 100_000_000, "fsdp_offload_params": True,
                        "ratio": 0.001, "tiny": 1e-20, "text": "1e3", "date": "2001-01-01",
                        "none": None, "deep": {"list": [1, "1", True, "true", [], {}]},
                        "lines": "a\n\nb\n", "empty": ""}}, allow_unicode=True))
    before = as_dict(path)
    done = run("config", "update", "--config_file", path)
    assert done.returncode == 0, done.stderr
    assert as_dict(path) == before


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_the_peer_accepts_a_default_config_of_haul(environment, suffix):
    ours, theirs = environment / f"ours.{suffix}", environment / f"theirs.{suffix}"
    done = run("config", "default", "--config_file", ours, "--mixed_precision", "bf16")
    assert done.returncode == 0, done.stderr
    write_basic_config(mixed_precision="bf16", save_location=str(theirs))
    assert as_dict(ours) == as_dict(theirs)


def test_both_refuse_unknown_keys(environment):
    path = environment / "wrong.yaml"
    path.write_text("distributed_type: 'NO'\nzebra: 1\nalpaca: 2\n")
    with pytest.raises(ValueError, match="alpaca.*zebra"):
        load_config_from_file(str(path))
    done = run("config", "update", "--config_file", path)
    assert done.returncode == 1
    assert "unknown keys: 'alpaca', 'zebra'" in done.stderr and str(path) in done.stderr


class Terminal:
    """A program on a pseudo terminal, and what it showed."""

    def __init__(self, *command):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # work in the background ignores it
            os.execv(command[0], [str(word) for word in command])
        self.shown = ""

    def wait(self, text, seconds=30):
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < end, f"no {text!r} in {self.shown!r}"
            if select.select([self.file], [], [], 0.1)[0]:
                self.shown += os.read(self.file, 65536).decode()

    def answer(self, question, text):
        self.wait(question)
        self.shown = ""
        os.write(self.file, text.encode())

    def code(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.file)
        return os.waitstatus_to_exitcode(status)


def test_the_questions_on_a_terminal(environment):
    path = environment / "asked.yaml"
    terminal = Terminal(HAUL, "config", "--config_file", path)
    terminal.answer("How many machines?", "\n")
    terminal.answer("Use the CPUs alone?", "yes\n")
    terminal.answer("How many processes?", "many\n")
    terminal.answer("A number from 1", "4\n")
    terminal.answer("Pin each process", "y\n")
    terminal.answer("Mixed precision", "bf16\n")
    assert not path.exists()
    terminal.answer("Check what processes send", "\n")
    terminal.wait(str(path))
    assert terminal.code() == 0
    config = as_dict(path)
    assert config["distributed_type"] == "MULTI_CPU"
    assert (config["num_processes"], config["use_cpu"]) == (4, True)
    assert (config["mixed_precision"], config["enable_cpu_affinity"]) == ("bf16", True)


@pytest.mark.parametrize("key, code", [("\x03", -2), ("\x04", 1)])  # Ctrl-C, Ctrl-D
def test_questions_that_end_early_write_nothing(environment, key, code):
    path = environment / "asked.yaml"
    terminal = Terminal(HAUL, "config", "--config_file", path)
    terminal.answer("How many machines?", "\n")
    terminal.answer("Use the CPUs alone?", key)
    assert terminal.code() == code
    assert not path.exists()


def test_ctrl_c_reaches_one_rank_on_a_terminal_and_its_input_is_the_terminal(environment):
    terminal = Terminal(HAUL, "launch", "--num_processes", "1", "sh", "-c",
                        "read line; echo got $line; trap 'echo trapped; exit 0' INT; "
                        "echo ready; while :; do sleep 0.05; done")
    os.write(terminal.file, b"hello\n")
    terminal.wait("got hello")
    terminal.wait("ready")
    os.write(terminal.file, b"\x03")
    terminal.wait("trapped")
    assert terminal.code() == -2


REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
print("sum", x.item(), "of", dist.get_world_size(), flush=True)
if sys.argv[1:] == ["hang"]:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    dist.barrier()
dist.destroy_process_group()
"""


def test_a_script_reduces_over_its_ranks(environment):
    script = environment / "reduce.py"
    script.write_text(REDUCE)
    done = run("launch", "--num_processes", 2, "--cpu", "--prefix", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] sum 3.0 of 2", "[rank 1] sum 3.0 of 2"]


def test_a_rank_in_a_collective_ends_when_another_is_killed(environment):
    script = environment / "reduce.py"
    script.write_text(REDUCE)
    done = run("launch", "--num_processes", 2, "--cpu", script, "hang")
    assert done.returncode == 137
    assert "rank 1 (pid" in done.stderr and "signal 9" in done.stderr


def test_a_script_reduces_over_two_machines(environment):
    script = environment / "reduce.py"
    script.write_text(REDUCE)
    port = 20000 + os.getpid() % 10000
    machines = [subprocess.Popen(
        [HAUL, "launch", "--num_processes", "2", "--num_machines", "2", "--machine_rank", str(rank),
         "--main_process_ip", "127.0.0.1", "--main_process_port", str(port), "--cpu", script],
        stdout=subprocess.PIPE, text=True) for rank in range(2)]
    for machine in machines:
        out, _ = machine.communicate(timeout=120)
        assert (machine.returncode, out) == (0, "sum 3.0 of 2\n")
