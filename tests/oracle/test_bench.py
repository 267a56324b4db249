"""`haul bench` beside the peer: figures of both sides, and the same ids."""

import json
import subprocess
import sys

import pytest

from run_haul import HAUL

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 500,
          "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": False,
          "torch_dtype": "float32"}


@pytest.mark.parametrize("name,rows", [("decode", 1), ("load", 4), ("offload", 3), ("throughput", 1)])
def test_both_sides_do_the_same(tmp_path, name, rows):
    (tmp_path / "small.json").write_text(json.dumps(CONFIG))
    done = subprocess.run([HAUL, "bench", name, "--shape", tmp_path / "small.json", "--folder", tmp_path / "made",
                           f"--peer={sys.executable}", "--rounds", "1", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["rows"]) == rows
    assert found["peer_versions"].keys() == {"torch", "transformers", "accelerate"}
    for row in found["rows"]:
        if row["haul"] is None:  # all that haul needs for so small a model is more than a quarter of it
            assert row["name"].startswith("25 %") and "does not fit" in row["remark"], row
            continue
        assert row["haul"] > 0 and row["peer"] > 0, row
        ratio = row["haul"] / row["peer"] if row["unit"] == "tokens/s" else row["peer"] / row["haul"]
        assert row["times_the_peer"] == pytest.approx(ratio)
        assert row["ids"]["same"], row
