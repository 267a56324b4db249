"""The peer's side of `haul bench`: Transformers, and Accelerate where weights do not fit.

  python3 -c "$(cat peer.py)" FOLDER SPEC

SPEC is a file with a JSON object: device, max_memory (what each may hold, in bytes; absent: all on
that one), gpu_memory (bytes that all it has on the GPU may take), offload_folder, prompts (lists of
ids of one length), new (tokens). One JSON line comes out when the first token is there, and another
at the end: load_s, first_token_s, tokens_per_s (after the first, of all prompts), ids, and for each
token of each prompt the 64 likeliest with their logits.
"""

import json
import sys
import time


def main():
    folder = sys.argv[1]
    with open(sys.argv[2]) as file:
        spec = json.load(file)
    import accelerate
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = spec["device"]
    if "gpu_memory" in spec:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, spec["gpu_memory"] / total))
    options = {"dtype": "auto", "device_map": device}
    if "max_memory" in spec:
        options["device_map"] = "auto"
        options["max_memory"] = {int(k) if k.isdigit() else k: v for k, v in spec["max_memory"].items()}
        options["offload_folder"] = spec["offload_folder"]
    begin = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    if device == "cuda":
        torch.cuda.synchronize()
    load = time.perf_counter() - begin
    prompts = torch.tensor(spec["prompts"], device=device)

    class Times(transformers.StoppingCriteria):
        """When each token was there; stops nothing."""

        def __init__(self):
            self.seen = []

        def __call__(self, ids, scores, **unused):
            if device == "cuda":
                torch.cuda.synchronize()
            self.seen.append(time.perf_counter())
            return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)

    def generate(count):
        times = Times()
        begin = time.perf_counter()
        out = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=count,
                             min_new_tokens=count, do_sample=False, pad_token_id=0, return_dict_in_generate=True,
                             output_logits=True, stopping_criteria=transformers.StoppingCriteriaList([times]))
        ids = out.sequences[:, prompts.shape[1]:].tolist()
        rate = len(ids) * (count - 1) / (times.seen[-1] - times.seen[0]) if count > 1 else 0
        return times.seen[0] - begin, rate, ids, out.logits

    with torch.inference_mode():
        first, rate, ids, logits = generate(1)
        print(json.dumps({"ids": ids}), flush=True)
        if spec["new"] > 1:  # all is loaded by now
            first, rate, ids, logits = generate(spec["new"])
        values, names = torch.stack(logits, 1).float().topk(min(64, logits[0].shape[-1]))
        tops = [list(zip(*row)) for row in zip(names.tolist(), values.tolist())]
    print(json.dumps({
        "load_s": load, "first_token_s": first, "tokens_per_s": rate, "ids": ids, "tops": tops,
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, accelerate)}}), flush=True)


main()
