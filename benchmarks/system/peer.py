"""The peer's side of `haul bench`: Transformers, and Accelerate where weights do not fit.

  python3 - FOLDER SPEC < peer.py

SPEC is a JSON object: max_memory (what each device may hold, in bytes; absent: all on one device),
offload_folder, prompts (lists of ids of one length), new (tokens), warm (generate once before it
counts). One JSON line comes out when the first token is there, and another at the end: load_s,
first_token_s, tokens_per_s (after the first, of all prompts), all_s (from the prompts to the end),
ids, and for each token of the first prompt the two likeliest with their logits.
"""

import json
import sys
import time


def main():
    folder, spec = sys.argv[1], json.loads(sys.argv[2])
    import accelerate
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {"dtype": "auto", "device_map": device}
    if "max_memory" in spec:
        options["device_map"] = "auto"
        options["max_memory"] = {int(k) if k.isdigit() else k: v for k, v in spec["max_memory"].items()}
        options["offload_folder"] = spec["offload_folder"]
    begin = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    load = time.perf_counter() - begin
    prompts = torch.tensor(spec["prompts"], device=device)

    def generate(count, **more):
        begin = time.perf_counter()
        out = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=count,
                             min_new_tokens=count, do_sample=False, pad_token_id=0, return_dict_in_generate=True, **more)
        ids = out.sequences[:, prompts.shape[1]:].tolist()  # waits for the device
        return time.perf_counter() - begin, ids, out

    with torch.inference_mode():
        first, ids, _ = generate(1)
        print(json.dumps({"ids": ids}), flush=True)
        if spec["warm"]:
            first = generate(1)[0]
        all_s, tops = first, []
        if spec["new"] > 1:
            all_s, ids, out = generate(spec["new"], output_logits=True)
            for logits in out.logits:
                values, names = logits[0].float().topk(2)
                tops.append([names.tolist(), values.tolist()])
    rate = len(ids) * (spec["new"] - 1) / (all_s - first) if spec["new"] > 1 else 0
    print(json.dumps({
        "load_s": load, "first_token_s": first, "tokens_per_s": rate, "all_s": all_s, "ids": ids, "tops": tops,
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, accelerate)}}), flush=True)


main()
