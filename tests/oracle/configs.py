"""Random configs of every family, and the models that Transformers builds of them, empty."""

import random
import zlib

import torch
import transformers

CASES = 20
ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "quick_gelu", "tanh",
               "gelu_10", "gelu_fast", "gelu_python", "hardswish", "leaky_relu", "mish", "relu2",
               "relu6", "swish", "laplace", "linear", "sigmoid", "prelu", "gelu_accurate"]


def build(config, class_name=None):
    parsed = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    with torch.device("meta"):
        if class_name is None:
            return transformers.AutoModel.from_config(parsed, dtype=torch.float32)
        return getattr(transformers, class_name)._from_config(parsed, dtype=torch.float32)


class Chooser:
    """Random values for keys, of which each may also be left to its default."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.config = {}

    def maybe(self, key, *values, chance=0.6):
        if self.random.random() < chance:
            self.config[key] = self.random.choice(values)

    def always(self, key, *values):
        self.config[key] = self.random.choice(values)

    def common(self):
        self.maybe("num_labels", 1, 3, 7, chance=0.3)
        if self.random.random() < 0.3:
            count = self.random.randint(1, 9)
            self.config["id2label"] = {str(i): f"label {i}" for i in range(count)}
            self.config.pop("num_labels", None)
        self.maybe("torch_dtype", "bfloat16", "float16", "float32", chance=0.5)
        self.maybe("pad_token_id", 0, 5, None, chance=0.5)
        self.maybe("tie_word_embeddings", True, False, chance=0.7)
        self.maybe("vocab_size", 97, 128, 1000, chance=0.9)


def heads_and_width(c, heads_key, width_key, sizes=(2, 4, 8)):
    heads = c.random.choice([1, 2, 3, 4, 8])
    c.config[heads_key] = heads
    c.config[width_key] = heads * c.random.choice(sizes) * 2
    return heads


def rope(c, head_size):
    kind = c.random.choice([None, "default", "linear", "dynamic", "yarn", "llama3", "longrope"])
    if kind is None:
        c.maybe("rope_theta", 1000.0, 500000.0)
        return
    scaling = {"rope_type": kind, "factor": 2.0}
    if kind == "default":
        scaling = {"rope_type": "default"}
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64}
    if kind == "longrope":
        scaling |= {"short_factor": [1.0] * (head_size // 2), "long_factor": [2.0] * (head_size // 2),
                    "original_max_position_embeddings": 64}
    if c.random.random() < 0.3 and kind in ("linear", "yarn", "dynamic") and head_size % 8 == 0:
        scaling["partial_rotary_factor"] = 0.5
    if c.random.random() < 0.3:
        scaling["type"] = scaling.pop("rope_type")
    c.config["max_position_embeddings"] = 256
    if c.random.random() < 0.5:
        c.config["rope_scaling"] = scaling
    else:
        c.config["rope_parameters"] = scaling | {"rope_theta": 10000.0}


def llama(c, variant):
    c.common()
    heads = heads_and_width(c, "num_attention_heads", "hidden_size")
    head_size = c.config["hidden_size"] // heads
    divisors = [k for k in (1, 2, 4, 8) if heads % k == 0]
    c.always("num_key_value_heads", *divisors, *([None] if variant != "mistral" else []))
    if variant == "qwen3":
        c.maybe("head_dim", 4, 8, 16, 32)
        head_size = c.config.get("head_dim", 128)
    else:
        c.maybe("head_dim", 4, 8, 16, *([None] if variant != "qwen2" else []), chance=0.5)
        head_size = c.config.get("head_dim") or head_size
    layers = c.random.randint(1, 4)
    c.config["num_hidden_layers"] = layers
    c.maybe("intermediate_size", 12, 40, 100)
    c.maybe("hidden_act", *ACTIVATIONS)
    c.maybe("attention_bias", True, False)
    c.maybe("mlp_bias", True, False)
    c.maybe("sliding_window", 16, 4096, None)
    c.maybe("use_sliding_window", True, False)
    c.maybe("max_window_layers", 0, 1, 2)
    c.maybe("token_classification_bias", True, False, chance=0.2)
    c.maybe("classifier_dropout", 0.0, 0.2, chance=0.3)
    if variant.startswith("qwen") and c.random.random() < 0.4:
        c.config["layer_types"] = [
            c.random.choice(["full_attention", "sliding_attention"]) for _ in range(layers)
        ]
    rope(c, head_size)


def bert(c):
    c.common()
    heads_and_width(c, "num_attention_heads", "hidden_size")
    c.always("num_hidden_layers", 1, 2, 3)
    c.maybe("intermediate_size", 12, 40)
    c.maybe("hidden_act", *ACTIVATIONS)
    c.maybe("max_position_embeddings", 16, 33)
    c.maybe("type_vocab_size", 1, 2, 5)
    c.maybe("is_decoder", True, False)
    if c.config.get("is_decoder"):
        c.maybe("add_cross_attention", True, False)
    c.maybe("classifier_dropout", 0.0, 0.3, None)
    c.maybe("position_embedding_type", "absolute", chance=0.2)


def gpt2(c):
    c.common()
    style = c.random.choice([("n_head", "n_embd", "n_layer", "n_positions"),
                             ("num_attention_heads", "hidden_size", "num_hidden_layers",
                              "max_position_embeddings")])
    heads_and_width(c, style[0], style[1])
    c.always(style[2], 1, 2, 3)
    c.maybe(style[3], 16, 33)
    c.maybe("n_ctx", 16, 1024)
    c.maybe("n_inner", None, 24, 50)
    c.maybe("activation_function", *ACTIVATIONS)
    c.maybe("add_cross_attention", True, False)
    c.maybe("summary_use_proj", True, False)
    c.maybe("summary_proj_to_labels", True, False)
    c.maybe("summary_activation", None, "tanh", "relu")
    c.maybe("summary_first_dropout", 0, 0.0, 0.3)
    c.maybe("summary_last_dropout", 0.0, 0.3)
    c.maybe("scale_attn_by_inverse_layer_idx", True, False)
    c.maybe("reorder_and_upcast_attn", True, False)


def t5(c):
    c.common()
    style = c.random.choice([("num_heads", "d_model", "num_layers", "d_kv"),
                             ("num_attention_heads", "hidden_size", "num_hidden_layers", "head_dim")])
    c.always(style[0], 1, 2, 3, 4)
    c.always(style[1], 8, 12, 20)
    c.always(style[2], 1, 2, 3)
    c.maybe(style[3], 4, 6, 10)
    c.maybe("num_decoder_layers", 1, 2, 4, None)
    c.maybe("d_ff", 12, 40)
    c.maybe("feed_forward_proj", "relu", "gated-gelu", "gated-silu", "gelu", "gated-relu")
    c.maybe("relative_attention_num_buckets", 4, 8)
    c.maybe("is_encoder_decoder", True, chance=0.3)
    c.maybe("is_decoder", True, False, chance=0.3)
    c.maybe("dense_act_fn", "relu", "gelu_new", chance=0.2)
    c.maybe("is_gated_act", True, False, chance=0.2)


def bloom(c):
    c.common()
    style = c.random.choice([("n_head", "n_layer"), ("num_attention_heads", "num_hidden_layers")])
    heads_and_width(c, style[0], "hidden_size")
    if c.random.random() < 0.4:
        c.config["n_embed"] = c.config["hidden_size"] if c.random.random() < 0.5 else (
            c.config[style[0]] * 6)
    c.always(style[1], 1, 2, 3)
    c.maybe("classifier_dropout", 0.0, 0.2, None)
    c.maybe("pretraining_tp", 1, 2)
    c.maybe("slow_but_exact", True, False)


def idefics(c):
    c.common()
    heads_and_width(c, "num_attention_heads", "hidden_size")
    c.always("num_hidden_layers", 1, 2, 4)
    c.maybe("intermediate_size", 12, 40)
    c.maybe("hidden_act", *ACTIVATIONS)
    c.maybe("additional_vocab_size", 0, 2, 5)
    c.maybe("cross_layer_interval", 1, 2, 3)
    c.maybe("qk_layer_norms", True, False)
    c.maybe("alpha_type", "float", "vector")
    c.maybe("alpha_initializer", "zeros", "ones")
    c.maybe("use_resampler", True, False)
    vision = Chooser(c.random.random())
    heads_and_width(vision, "num_attention_heads", c.random.choice(["embed_dim", "hidden_size"]))
    vision.always("num_hidden_layers", 1, 2)
    vision.maybe("intermediate_size", 12, 40)
    vision.maybe("image_size", 28, 30, 32)
    vision.maybe("patch_size", 4, 7)
    vision.maybe("hidden_act", *ACTIVATIONS)
    c.config["vision_config"] = vision.config
    perceiver = Chooser(c.random.random())
    perceiver.maybe("resampler_depth", 1, 2)
    perceiver.maybe("resampler_n_heads", 1, 3)
    perceiver.maybe("resampler_head_dim", 4, 6)
    perceiver.maybe("resampler_n_latents", 4, 6)
    perceiver.maybe("qk_layer_norms_perceiver", True, False)
    c.maybe("perceiver_config", perceiver.config, chance=0.8)


GENERIC = ["ForCausalLM", "ForSequenceClassification", "ForTokenClassification",
           "ForQuestionAnswering", "Model"]
FAMILIES = {
    "llama": (lambda c: llama(c, "llama"), ["Llama" + head for head in GENERIC]),
    "mistral": (lambda c: llama(c, "mistral"), ["Mistral" + head for head in GENERIC]),
    "qwen2": (lambda c: llama(c, "qwen2"), ["Qwen2" + head for head in GENERIC]),
    "qwen3": (lambda c: llama(c, "qwen3"), ["Qwen3" + head for head in GENERIC]),
    "bert": (bert, ["BertModel", "BertForMaskedLM", "BertLMHeadModel", "BertForPreTraining",
                    "BertForNextSentencePrediction", "BertForSequenceClassification",
                    "BertForMultipleChoice", "BertForTokenClassification",
                    "BertForQuestionAnswering"]),
    "gpt2": (gpt2, ["GPT2Model", "GPT2LMHeadModel", "GPT2DoubleHeadsModel",
                    "GPT2ForSequenceClassification", "GPT2ForTokenClassification",
                    "GPT2ForQuestionAnswering"]),
    "t5": (t5, ["T5Model", "T5ForConditionalGeneration", "T5EncoderModel",
                "T5ForSequenceClassification", "T5ForTokenClassification",
                "T5ForQuestionAnswering"]),
    "bloom": (bloom, ["BloomModel", "BloomForCausalLM", "BloomForSequenceClassification",
                      "BloomForTokenClassification", "BloomForQuestionAnswering"]),
    "idefics": (idefics, ["IdeficsModel", "IdeficsForVisionText2Text"]),
}


def random_config(family, class_name, case):
    chooser = Chooser(zlib.crc32(f"{class_name} {case}".encode()))
    FAMILIES[family][0](chooser)
    return {"architectures": [class_name], "model_type": family, **chooser.config}
