"""`haul run` as a person uses it: a shell in a terminal, by tmux."""

import json
import re
import time

import pytest
import torch
import transformers

from run_haul import HAUL, SMOLLM2
from tmux_terminal import PROMPT, Terminal

READY = rf"^{re.escape(PROMPT)}?\Z"  # the shell waits, on a line of its own
ASKS = r"^> ?\Z"  # a chat waits for a line
RUN = f"{HAUL} run {SMOLLM2}"
STORY = "'Tell me a very long story about a river.'"


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    terminal.enter(f"alias ask='{RUN} --temperature 0'")
    terminal.clear()
    yield terminal
    terminal.close()


def words(text):
    return " ".join(text.split())


def test_an_answer_is_seen_while_it_comes(terminal):
    terminal.enter("ask --prompt 'Count from one to twenty in words.' --max-new-tokens 60 2>/dev/null")
    seen = []
    while not re.search(READY, screen := terminal.screen(), re.M):
        text = screen.split("2>/dev/null", 1)[1].strip() if "2>/dev/null" in screen else ""
        if not seen or text != seen[-1][1]:
            seen.append((time.monotonic(), text))
        assert time.monotonic() - seen[0][0] < 60
    final = screen.split("2>/dev/null", 1)[1].rsplit("\n", 1)[0].strip()
    grown = [(moment, text) for moment, text in seen if text]
    assert len(grown) >= 5
    for _, text in grown:
        assert words(final).startswith(words(text))
    assert grown[-1][0] - grown[0][0] > 0.1
    assert terminal.code() == 0


def test_a_plan_is_drawn_and_figures_follow(terminal):
    terminal.enter("ask --prompt 'What is the capital of France?'")
    screen = terminal.wait(READY)
    plan, text, figures = (re.search(pattern, screen, re.M) for pattern in (
        r"^  RAM +█+", r"^The capital of France is Paris\.",
        r"^load [\d.]+ s, first token [\d.]+ s, [\d.]+ tokens/s"))
    assert plan.start() < text.start() < figures.start()


def test_many_processes_draw_one_bar(terminal, tmp_path):
    (tmp_path / "many.txt").write_text("Say a word.\n" * 12)
    terminal.enter(f"ask --file {tmp_path}/many.txt --lines --num-processes 2 --max-new-tokens 4 --context 256 >answers")
    screen = terminal.wait(r"^([2-9]|\d\d) of 12 prompts$")
    assert len(re.findall(r"of 12 prompts", screen)) == 1
    screen = terminal.wait(READY)
    assert len(re.findall(r"of 12 prompts", screen)) == 1 and "12 of 12 prompts in" in screen
    assert len(re.findall("loading", screen)) <= 1
    assert terminal.code() == 0


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
    terminal.enter("ask --chat --max-new-tokens 16 --system 'You know cities.'")
    terminal.wait(ASKS)
    for line, text in zip(lines, theirs):
        terminal.enter(line)
        screen = terminal.wait(rf"^> {re.escape(line)}\n(?s:.*)\n> ?\Z")
        shown = screen.rsplit(f"> {line}\n", 1)[1].rsplit("\n", 1)[0]
        assert words(shown) == words(text)
    terminal.type("C-d")
    terminal.wait(READY)
    assert terminal.code() == 0


def settings(terminal, folder):
    """Of the terminal, and whether its cursor is seen."""
    assert terminal.run("stty -g > settings") == 0
    return (folder / "settings").read_text(), terminal.tmux("display-message", "-p", "#{cursor_flag}")


def test_ctrl_c_ends_the_answer_and_leaves_the_terminal_as_it_was(terminal, tmp_path):
    before = settings(terminal, tmp_path)
    assert ":" in before[0] and before[1] == "1\n"
    terminal.clear()
    terminal.enter(f"ask --prompt {STORY} --max-new-tokens 2000 2>/dev/null")
    terminal.wait(r"2>/dev/null\n(?s:.{80})")
    start = time.monotonic()
    terminal.type("C-c")
    terminal.wait(READY)
    assert time.monotonic() - start < 5
    assert terminal.code() == 130
    terminal.clear()
    terminal.enter("echo still $((40 + 2))")
    terminal.wait(rf"^still 42\n{re.escape(PROMPT)}?\Z")
    assert settings(terminal, tmp_path) == before


def test_ctrl_c_in_a_chat_ends_the_answer_and_at_its_prompt_the_chat(terminal):
    terminal.enter("ask --chat")
    terminal.wait(ASKS)
    terminal.enter("Tell me a very long story about a river.")
    terminal.wait(r"about a river\.\n(?s:.{80})")
    terminal.type("C-c")
    terminal.wait(r"about a river\.\n(?s:.*)\n> ?\Z")
    terminal.enter("Say yes.")
    terminal.wait(r"^> Say yes\.\n.{2}(?s:.*)\n> ?\Z")
    terminal.type("C-c")
    terminal.wait(READY)
    assert terminal.code() == 130


def test_a_pipe_in_and_out(terminal, tmp_path):
    question = "What is the capital of France?"
    assert terminal.run(f"echo '{question}' | ask 2>figures | tr a-z A-Z > answer") == 0
    assert (tmp_path / "answer").read_text() == "THE CAPITAL OF FRANCE IS PARIS.\n"
    assert "\x1b" not in (tmp_path / "figures").read_text()
    terminal.clear()
    terminal.enter(f"ask --prompt {STORY} --max-new-tokens 2000 2>/dev/null | cat")
    terminal.wait(r"\| cat\n(?s:.{80})")
    terminal.type("C-c")
    terminal.wait(READY)
    terminal.enter("echo still here")
    terminal.wait(r"^still here$")


def test_json_is_for_programs_and_the_rest_is_still_seen(terminal, tmp_path):
    assert terminal.run("ask --prompt 'What is the capital of France?' --json > answer") == 0
    answer = json.loads((tmp_path / "answer").read_text())
    assert answer["text"] == "The capital of France is Paris."
    assert answer.keys() == {"text", "ids", "prompt_ids", "device_map", "stats"}
    assert re.search(r"^load [\d.]+ s", terminal.screen(), re.M)


def test_progress_over_many_prompts_is_gone_at_the_end(terminal, tmp_path):
    (tmp_path / "lines").write_text("Say yes.\n" * 6)
    terminal.enter("ask --file lines --lines --max-new-tokens 8 > answers")
    terminal.wait(r"^[1-5] of 6 prompts$")
    screen = terminal.wait(READY)
    assert re.search(r"^load .* 6 of 6 prompts in", screen, re.M)
    assert not re.search(r"^\d of 6 prompts$", screen, re.M)
    assert len((tmp_path / "answers").read_text().split("\n\n")) == 6
