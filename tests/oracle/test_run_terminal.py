"""`haul run` as a person uses it: a shell on a pseudo terminal."""

import os
import pty
import re
import select
import signal
import time

import pytest
import torch
import transformers

from run_haul import HAUL, SMOLLM2

PROMPT = "ready$ "
ASKS = r"(\x1b\[1m)?> (\x1b\[0?m)?$"  # a chat waits for a line


class Terminal:
    """A shell, what it showed so far, and when."""

    def __init__(self):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1=PROMPT, TERM="xterm", COLUMNS="100", ENV="")
            os.execvp("sh", ["sh", "-i"])
        self.shown = ""
        self.wait(re.escape(PROMPT))

    def close(self):
        os.close(self.file)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def type(self, keys):
        self.shown = ""
        os.write(self.file, keys.encode())

    def read(self, seconds):
        """One piece, or nothing."""
        if not select.select([self.file], [], [], seconds)[0]:
            return ""
        piece = os.read(self.file, 65536).decode(errors="replace")
        self.shown += piece
        return piece

    def wait(self, pattern, seconds=60):
        """Until the pattern was shown."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < end, f"no {pattern!r} in {self.shown!r}"
            self.read(0.1)
        return found

    def code(self):
        """Of the last command; so the shell listens."""
        self.type("echo code=$?\n")
        return int(self.wait(r"code=(\d+)").group(1))


@pytest.fixture
def terminal():
    terminal = Terminal()
    yield terminal
    terminal.close()


def run(*flags):
    return f"{HAUL} run {SMOLLM2} {' '.join(flags)}\n"


def test_an_answer_comes_in_pieces(terminal):
    terminal.type(run("--prompt 'Count from one to ten in words.'", "--temperature 0",
                      "--max-new-tokens 40", "2>/dev/null"))
    terminal.wait("\n")
    pieces = []
    while PROMPT not in terminal.shown:
        pieces.append((time.monotonic(), terminal.read(60)))
    assert len(pieces) >= 10
    assert pieces[-1][0] - pieces[0][0] > 0.05
    assert terminal.code() == 0


def test_a_plan_is_drawn_and_figures_follow(terminal):
    terminal.type(run("--prompt 'What is the capital of France?'", "--temperature 0"))
    terminal.wait(r"Paris[^\n]*\r\n")
    terminal.wait(r"load [\d.]+ s, first token [\d.]+ s, [\d.]+ tokens/s")
    terminal.wait(re.escape(PROMPT))


def chat_with_transformers(system, lines):
    """What it answers to each line, at most 16 tokens."""
    where = {"gguf_file": SMOLLM2.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2.parent, **where)
    model = transformers.AutoModelForCausalLM.from_pretrained(SMOLLM2.parent, dtype=torch.float32,
                                                              **where).eval()
    messages = [{"role": "system", "content": system}]
    for line in lines:
        messages.append({"role": "user", "content": line})
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True,
                                               return_tensors="pt", return_dict=True)
        with torch.no_grad():
            ids = model.generate(**prompt, do_sample=False, max_new_tokens=16)[0]
        text = tokenizer.decode(ids[prompt["input_ids"].shape[1]:], skip_special_tokens=True)
        messages.append({"role": "assistant", "content": text})
        yield text


def test_a_chat_of_three_turns_goes_as_with_transformers(terminal):
    lines = ["What is the capital of France?", "How many people live there?",
             "Which city did I ask about?"]
    theirs = list(chat_with_transformers("You know cities.", lines))
    terminal.type(run("--chat", "--temperature 0", "--max-new-tokens 16",
                      "--system 'You know cities.'"))
    terminal.wait(ASKS)
    for line, text in zip(lines, theirs):
        terminal.type(line + "\n")
        terminal.wait(r"\n(?s:.*)" + ASKS)
        shown = terminal.shown.split("\n", 1)[1].replace("\r", "")
        assert re.sub(ASKS, "", shown) == text + "\n"
    terminal.type("\x04")
    terminal.wait(r"\n" + re.escape(PROMPT))
    assert terminal.code() == 0


def long_answer(terminal, *flags):
    terminal.type(run("--prompt 'Tell me a very long story about a river.'", "--temperature 0",
                      "--max-new-tokens 2000", "2>/dev/null", *flags))
    terminal.wait(r"\n(?s:.{80})")


def test_ctrl_c_ends_the_answer_on_a_line_of_its_own(terminal):
    long_answer(terminal)
    start = time.monotonic()
    terminal.type("\x03")
    terminal.wait(r"\n" + re.escape(PROMPT))
    assert time.monotonic() - start < 5
    assert terminal.code() == 130
    terminal.type("echo still $((40 + 2))\n")
    terminal.wait(r"still 42\r\n" + re.escape(PROMPT))


def test_ctrl_c_in_a_chat_ends_the_answer_and_at_its_prompt_the_chat(terminal):
    terminal.type(run("--chat", "--temperature 0"))
    terminal.wait(ASKS)
    terminal.type("Tell me a very long story about a river.\n")
    terminal.wait(r"\n(?s:.{80})")
    terminal.type("\x03")
    terminal.wait(r"\n(?s:.*)" + ASKS)
    terminal.type("Say yes.\n")
    terminal.wait(r"\n.{2}(?s:.*)\n(?s:.*)" + ASKS)
    terminal.type("\x03")
    terminal.wait(r"\n" + re.escape(PROMPT))
    assert terminal.code() == 130


def test_ctrl_c_ends_a_pipe_too(terminal):
    long_answer(terminal, "| cat")
    terminal.type("\x03")
    terminal.wait(re.escape(PROMPT))
    terminal.type("echo still here\n")
    terminal.wait(r"still here\r\n")
