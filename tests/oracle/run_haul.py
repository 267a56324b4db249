"""The command as the oracle tests of `haul run` call it."""

import json
import os
import pathlib
import subprocess

HAUL = pathlib.Path(os.environ.get("HAUL", "build/haul")).resolve()
MODELS = pathlib.Path(__file__).resolve().parents[2] / ".models"
SMOLLM2 = next((MODELS / "smollm2").glob("*.gguf"), None)


def run(*arguments, text=None):
    """Its exit code, stdout and stderr."""
    done = subprocess.run([HAUL, "run", *map(str, arguments)], input=text, text=True,
                          stdin=subprocess.DEVNULL if text is None else None,
                          capture_output=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def answer(*arguments, text=None):
    """What it answers as JSON."""
    code, out, err = run(*arguments, "--json", text=text)
    assert code == 0, err
    return json.loads(out)
