"""`haul run` with what it cannot run: what it says, and how it ends."""

import json
import re
import shutil
import subprocess

import pytest
import transformers

from run_haul import HAUL, MODELS, SMOLLM2, answer, run
from run_models import gpt2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    gpt2(folder, transformers.GPT2LMHeadModel)
    return folder


@pytest.fixture
def model(whole, tmp_path):
    """A copy to break."""
    return shutil.copytree(whole, tmp_path / "model")


def fails(code, *arguments, text=None):
    """The lines of an error: one, and one that helps."""
    found, out, err = run(*arguments, text=text)
    assert found == code, err
    assert out == ""
    lines = err.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("haul: error: "))
    assert len(lines) - first <= 2, err
    assert "Exception raised from" not in err
    return "\n".join(lines[first:])


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def test_the_model_itself_answers(model):
    assert len(answer(model, "--prompt", "a dog", "--max-new-tokens", 4)["ids"]) == 4


def test_a_folder_without_config(model):
    (model / "config.json").unlink()
    error = fails(1, model, "--prompt", "a dog")
    assert "config.json" in error and str(model) in error


def test_an_empty_folder(tmp_path):
    assert str(tmp_path) in fails(1, tmp_path, "--prompt", "a dog")


def test_an_unknown_architecture(model):
    change_config(model, architectures=["SongForCausalLM"], model_type="song")
    error = fails(1, model, "--prompt", "a dog")
    assert "'SongForCausalLM'" in error
    assert "LlamaForCausalLM" in error and "T5ForConditionalGeneration" in error
    assert "haul estimate" in error and "haul plan" in error


def test_a_tokenizer_of_another_model(model):
    shutil.copy(MODELS / "minilm/tokenizer.json", model)
    error = fails(1, model, "--prompt", "a dog")
    assert "30522 tokens" in error and "another model" in error


def test_no_tokenizer(model):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    assert "tokenizer" in fails(1, model, "--prompt", "a dog")
    # Ids need none.
    assert answer(model, "--ids", "5,6,7", "--max-new-tokens", 3)["prompt_ids"] == [5, 6, 7]


def test_a_prompt_longer_than_the_context(model):
    error = fails(2, model, "--prompt", "dog " * 70)
    assert "70 tokens" in error and "context 64" in error
    error = fails(2, model, "--prompt", "dog " * 20, "--context", 16)
    assert "20 tokens" in error and "context 16" in error
    assert "70 tokens" in fails(2, model, "--prompt", "dog " * 70, "--task", "embed")


def test_ids_that_the_model_does_not_have(model, tmp_path):
    assert "100000" in fails(2, model, "--ids", "1,100000")
    assert "100000" in fails(2, model, "--ids", "1,100000", "--logits", tmp_path / "logits")
    assert "--ids" in fails(2, model, "--ids", "1,dog")


def test_no_prompt_at_all(model):
    assert "no tokens" in fails(2, model, text="")


def test_a_checkpoint_that_was_cut(model):
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:weights.stat().st_size // 2])
    error = fails(1, model, "--prompt", "a dog")
    assert "model.safetensors" in error


def test_a_gguf_file_that_was_cut(tmp_path):
    with open(SMOLLM2, "rb") as whole:
        (tmp_path / "half.gguf").write_bytes(whole.read(SMOLLM2.stat().st_size // 2))
    assert "half.gguf" in fails(1, tmp_path / "half.gguf", "--prompt", "a dog")


def test_no_disk_space(tmp_path):
    """Quantised weights on disk have to be written as they are needed: to a disk that is full."""
    offload = tmp_path / "offload"
    offload.mkdir()
    (tmp_path / "map.json").write_text('{"": "disk"}')
    mount = f"mount -t tmpfs -o size=8m tmpfs {offload}"
    if subprocess.run(["unshare", "-Urm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    command = (f"{HAUL} run {SMOLLM2} --prompt x --device-map {tmp_path}/map.json "
               f"--offload-folder {offload}")
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", f"{mount} && {command}; echo code $?; ls -A {offload}"],
        capture_output=True, text=True, timeout=300)
    assert done.stdout == "code 1\n"  # and nothing is left
    error = done.stderr[done.stderr.index("haul: error: "):]
    assert re.match(rf"haul: error: {offload}: [\d.]+ MB are needed and 8\.0 MB are free\n"
                    r"  free some space", error), error


def test_a_shard_that_is_missing(tmp_path):
    model, _ = gpt2(tmp_path, transformers.GPT2LMHeadModel)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert answer(tmp_path, "--prompt", "a dog", "--max-new-tokens", 2)["ids"]
    shards[1].unlink()
    assert shards[1].name in fails(1, tmp_path, "--prompt", "a dog")


def test_weights_that_are_missing(model):
    change_config(model, n_layer=3)
    assert "transformer.h.2." in fails(1, model, "--prompt", "a dog")


def test_weights_of_another_shape(model):
    change_config(model, n_positions=32)
    error = fails(1, model, "--prompt", "a dog")
    assert "transformer.wpe.weight" in error and "64" in error and "32" in error


def test_steps_that_no_one_knows(tmp_path):
    gpt2(tmp_path, transformers.GPT2Model)
    (tmp_path / "modules.json").write_text(json.dumps(
        [{"path": "", "type": "sentence_transformers.models.Transformer"},
         {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
         {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]))
    error = fails(1, tmp_path, "--prompt", "a dog")
    assert "modules.json" in error and "'Dense'" in error
    (tmp_path / "modules.json").write_text("[1")
    assert "modules.json" in fails(1, tmp_path, "--prompt", "a dog")


def test_a_layer_type_that_is_not_known(tmp_path):
    transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8)).save_pretrained(tmp_path)
    assert answer(tmp_path, "--ids", "1,2", "--max-new-tokens", 2)["ids"]
    change_config(tmp_path, layer_types=["full_attention", "linear_attention"])
    error = fails(1, tmp_path, "--ids", "1,2")
    assert '"linear_attention"' in error and '"sliding_attention"' in error


def test_flags_that_exclude_each_other(model):
    assert "--prompt, --chat, --file and --ids" in fails(2, model, "--prompt", "a", "--ids", "1")
    assert "--logits needs --ids" in fails(2, model, "--prompt", "a", "--logits", "x")
    assert "no chat template" in fails(1, model, "--chat")


def test_help_has_examples():
    code, out, _ = run("--help")
    assert code == 0
    assert "Examples:\n  haul run " in out
    for flag in ("--prompt", "--task", "--labels", "--json", "--max-memory"):
        assert flag in out


def test_a_pipe_in_and_out(whole, tmp_path):
    flags = (whole, "--max-new-tokens", 8, "--temperature", 0)
    code, out, err = run(*flags, "--prompt", "the old dog")
    assert code == 0
    assert "tokens/s" in err and "tokens/s" not in out
    assert "\x1b" not in out + err  # colours are for terminals
    assert run(*flags, text="the old dog\n")[1] == out
    (tmp_path / "prompt.txt").write_text("the old dog\n")
    assert run(*flags, "--file", tmp_path / "prompt.txt")[1] == out
    assert answer(*flags, text="the old dog\n")["text"] + "\n" == out
