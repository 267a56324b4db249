"""A shell in a terminal of its own, by tmux: what a person sees."""

import os
import re
import subprocess
import time
import uuid

PROMPT = "ready$ "


class Terminal:
    """A screen of 100 columns and 40 lines, keys to type, and what is shown."""

    def __init__(self, folder):
        self.asked = 0
        self.socket = f"haul-{uuid.uuid4().hex[:12]}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", "-c", folder,
                  "env", "-u", "NO_COLOR", f"PS1={PROMPT}", "ENV=", "sh", "-i")
        self.wait(rf"^{re.escape(PROMPT.strip())}")

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-L", self.socket, *map(str, arguments)], text=True,
                              capture_output=True, timeout=30,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "TMUX": ""})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self):
        self.tmux("kill-server")

    def type(self, *keys):
        """Text as it is; a key by its name, like C-c or Enter, alone."""
        for key in keys:
            literal = [] if re.fullmatch(r"C-.|Enter", key) else ["-l"]
            self.tmux("send-keys", *literal, key)

    def enter(self, line):
        self.type(line, "Enter")

    def screen(self):
        """All that was shown since it was cleared, with lines that were too long joined again."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-").rstrip("\n")

    def clear(self):
        self.enter("clear")
        self.wait(rf"\A{re.escape(PROMPT.strip())}\s*\Z")
        self.tmux("clear-history")

    def wait(self, pattern, seconds=60):
        """Until the screen shows it; what it shows then."""
        end = time.monotonic() + seconds
        while not re.search(pattern, screen := self.screen(), re.MULTILINE):
            assert time.monotonic() < end, f"no {pattern!r} in:\n{screen}"
            time.sleep(0.02)
        return screen

    def run(self, command, seconds=60):
        """A command from beginning to end: its exit code."""
        self.enter(command)
        return self.code(seconds)

    def code(self, seconds=60):
        """Of the last command, once the shell listens."""
        self.asked += 1
        self.enter(f"echo code {self.asked}: $?")
        # What is typed while a command runs stands before the prompt, and its answer behind it.
        found = rf"^(?:{re.escape(PROMPT)})?code {self.asked}: (\d+)$"
        return int(re.search(found, self.wait(found, seconds), re.M).group(1))
