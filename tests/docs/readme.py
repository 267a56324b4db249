#!/usr/bin/env python3
"""readme.py ROOT HAUL: runs every `$ haul …` of the README's console blocks and compares what it
prints with what stands below it. A block of C++ below <!-- FILE --> is that file, and
text below an SVG is what that shows."""
import html
import os
import pathlib
import re
import shlex
import subprocess
import sys

root, haul = pathlib.Path(sys.argv[1]), sys.argv[2]
text = (root / "README.md").read_text()
blocks = re.findall(r"```console\n\$ haul (.*?)\n(.*?)```", text, re.S)
if not blocks:
    sys.exit("the README shows no command")
failed = 0
# Of any machine: what this one was measured to give stays out of it.
environment = os.environ | {"HAUL_PROFILE": "/nonexistent"}
for command, shown in blocks:
    run = subprocess.run(
        [haul, *shlex.split(command)], cwd=root, env=environment, capture_output=True, text=True)
    tidy = lambda text: [line.rstrip() for line in text.strip("\n").split("\n")]
    same = run.returncode == 0 and tidy(run.stdout) == tidy(shown)
    print(f"haul {command}: {'as shown' if same else 'differs'}")
    if not same:
        print(run.stdout, run.stderr)
    failed += not same
for name, shown in re.findall(r"<!-- (\S+) -->\n```cpp\n(.*?)```", text, re.S):
    same = shown == (root / name).read_text()
    print(f"{name}: {'as shown' if same else 'differs'}")
    failed += not same
for name, shown in re.findall(r"<!-- (\S+\.svg) -->\n```text\n(.*?)```", text, re.S):
    drawn = re.findall(r"<text [^>]*>(.*?)</text>", (root / name).read_text())
    same = "".join(shown.split()) == "".join(html.unescape("".join(drawn)).split())
    print(f"{name}: {'as shown' if same else 'differs'}")
    failed += not same
sys.exit(failed)
