"""What plans say beside what runs do, on a machine with a GPU.

  HAUL=build/haul python3 benchmarks/predictions.py [FOLDER [NAME…]]

Measures the machine (`haul bench machine`), then runs models of random weights, which it makes in
FOLDER (a temporary one beside HAUL), one case after another, each as a process of its own with a prompt
that fills the context but for the tokens to come. NAME: only cases whose line has it. Where weights are not
all on the GPU the machine is measured again just before: others that share its RAM and CPUs change what
they give. Memory is what the GPU has less of while such a process runs, the driver's part of it included.
Answer: the machine is measured in under 30 s;
the plan says tokens a second within 10 % of what happens; the process never holds more of the GPU than
its plan, which keeps its budget, and at most 2 % less.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.pop(0)  # this folder: it has a tokenizers.py, which is not the one that transformers wants
HAUL = os.path.abspath(os.environ.get("HAUL", "build/haul"))
LLAMA = {"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 8192, "dtype": "bfloat16"}
SHAPES = {
    "llama-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                         "num_attention_heads": 32, "num_key_value_heads": 8},
    "llama-1b": LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                         "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "qwen2-3b": {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008,
                 "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
                 "max_position_embeddings": 8192, "tie_word_embeddings": True, "dtype": "bfloat16"},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "dtype": "bfloat16"},
    "bloom-3b": {"model_type": "bloom", "vocab_size": 250880, "hidden_size": 2560, "n_layer": 30, "n_head": 32,
                 "dtype": "bfloat16"},
    "qwen3-2b": {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
                 "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
                 "max_position_embeddings": 8192, "tie_word_embeddings": True, "dtype": "bfloat16"},
}
# A shape, its share of weights on the GPU (nothing: all), the context, new tokens.
CASES = [
    ("llama-8b", None, 288, 256), ("llama-8b", None, 8192, 128), ("llama-8b", 0.75, 96, 64),
    ("llama-8b", 0.60, 96, 64), ("llama-8b", 0.45, 96, 64), ("llama-8b", 0.33, 96, 48), ("llama-8b", 0.33, 4096, 48),
    ("llama-8b", 0.33, 8192, 47),
    ("llama-8b", 0.15, 96, 32), ("llama-1b", None, 288, 256), ("llama-1b", 0.60, 96, 64), ("qwen2-3b", None, 288, 256),
    ("qwen2-3b", None, 8192, 128), ("qwen2-3b", 0.50, 96, 64), ("gpt2-xl", None, 288, 256), ("gpt2-xl", 0.50, 96, 64),
    ("qwen3-2b", None, 288, 256), ("qwen3-2b", None, 4096, 256), ("bloom-3b", None, 288, 256),
]


def checkpoint(folder, shape):
    path = os.path.join(folder, shape)
    if not os.path.exists(os.path.join(path, "config.json")):
        import torch
        import transformers
        torch.manual_seed(1)
        config = transformers.AutoConfig.for_model(**SHAPES[shape] | {"bos_token_id": None, "eos_token_id": None})
        with torch.device("cuda"):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        transformers.logging.disable_progress_bar()
        model.save_pretrained(path)
        del model
        torch.cuda.empty_cache()
    sizes = [os.path.getsize(os.path.join(path, name)) for name in os.listdir(path)]
    return path, sum(sizes)


class Watch:
    """The most that the GPU has less of, from the beginning of a block to its end."""

    def __enter__(self):
        import torch
        self.free = torch.cuda.mem_get_info
        self.before = self.least = self.free()[0]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.ended.wait(0.002):
            self.least = min(self.least, self.free()[0])

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def peak(self):
        return self.before - self.least


def haul(environment, *arguments):
    ended = subprocess.run([HAUL, *arguments, "--json"], env=environment, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr.strip()[-400:])
    return json.loads(ended.stdout)


def planned(environment, path, limits):
    """Bytes of the GPU: what haul takes, and the driver."""
    device = haul(environment, "plan", path, *limits)["devices"][0]
    assert device["device"] == 0
    return sum(device[part] for part in ("weights", "margins", "kv", "activations", "slots")), device["context"]


def run(environment, path, new, prompt, limits):
    """What a run says of itself, and the most it had of the GPU."""
    with Watch() as watch:
        said = haul(environment, "run", path, "--temperature", "0", "--ids", ",".join(map(str, prompt)),
                    "--max-new-tokens", str(new), *limits)
    return said["stats"], watch.peak()


def main():
    import torch
    if not torch.cuda.is_available():
        print("left out: there is no GPU")
        return 0
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory(dir=os.path.dirname(HAUL)) as folder:
            return predict(folder, [])
    os.makedirs(sys.argv[1], exist_ok=True)
    return predict(os.path.abspath(sys.argv[1]), sys.argv[2:])


def predict(folder, names):
    environment = dict(os.environ, HAUL_PROFILE=os.path.join(folder, "profile.json"))
    failures = []
    tried = 0

    def hold(condition, text):
        if not condition:
            failures.append(text)

    def measure():
        begin = time.perf_counter()
        found = subprocess.run([HAUL, "bench", "machine", "--folder", folder], env=environment, check=True,
                               capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        hold(seconds < 30, f"measuring the machine took {seconds:.1f} s")
        return found.stdout, seconds

    found, seconds = measure()
    print(f"{found}the machine in {seconds:.1f} s")
    print(f"{'case':>34} {'planned':>9} {'seen':>9} {'of it':>6}   {'memory: of the plan':>20}")
    for shape, share, context, new in CASES:
        where = "all" if share is None else f"{100 * share:.0f} %"
        name = f"{shape}, {where} on GPU, {context}"
        if names and not any(part in name for part in names):
            continue
        tried += 1
        path, size = checkpoint(folder, shape)
        prompt = [(17 * i * i + 3 * i + 5) % 30000 for i in range(context - new)]
        budget = 0 if share is None else int(share * size)
        limits = ["--context", str(context)]
        if budget:
            measure()
            limits += ["--max-memory", f"0={budget},cpu={3 * size}"]
        try:
            own, driver = planned(environment, path, limits)
            memory = own + driver
            stats, peak = run(environment, path, new, prompt, limits)
            said, seen = stats["predicted"]["tokens_per_s"], stats["tokens_per_s"]
            print(f"{name:>34} {said:>9.2f} {seen:>9.2f} {seen / said:>6.2f}   {peak:>13} {peak / memory:>6.3f}",
                  flush=True)
            hold(abs(said - seen) <= 0.1 * seen, f"{name}: {seen:.2f} tokens/s, {said:.2f} planned")
            hold(stats["planned"]["GPU 0"] == own, f"{name}: another plan was run")
            hold(0.98 <= peak / memory <= 1, f"{name}: {peak} bytes, {memory} planned")
            hold(not budget or memory <= budget, f"{name}: {memory} bytes planned, the budget is {budget}")
        except RuntimeError as error:
            hold(False, f"{name}: {error}")
    hold(tried > 0, f"no case has a name with one of {names}")
    for failure in failures:
        print("MISSED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
