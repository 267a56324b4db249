"""Small models of random weights with tokenizers of their own, saved as Transformers saves them."""

import tokenizers
import torch
import transformers

WORDS = """the a one small large red green old new good house river mountain city dog cat bird
child king queen runs sleeps sees finds likes makes takes gives to from with under over and or
quickly slowly today tomorrow never always what is capital of France Paris""".split()


def trained_tokenizer(folder, model, trainer, template, **special):
    """A tokenizer of WORDS, saved beside the model."""
    fast = tokenizers.Tokenizer(model)
    fast.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    if template:
        fast.post_processor = tokenizers.processors.TemplateProcessing(
            single=template, special_tokens=[(t, fast.token_to_id(t)) for t in template.split()
                                             if t != "$A"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, **special)
    tokenizer.save_pretrained(folder)
    return tokenizer


def shaken(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def bert(folder, kind, **config):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = trained_tokenizer(
        folder, tokenizers.models.WordPiece(unk_token="[UNK]"),
        tokenizers.trainers.WordPieceTrainer(special_tokens=special, vocab_size=200),
        "[CLS] $A [SEP]", pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]")
    model = shaken(kind(transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, **config)), 1)
    model.save_pretrained(folder)
    return model, tokenizer


def gpt2(folder, kind, **config):
    tokenizer = trained_tokenizer(
        folder, tokenizers.models.BPE(unk_token="<unk>"),
        tokenizers.trainers.BpeTrainer(special_tokens=["<pad>", "<unk>"], vocab_size=200), None,
        pad_token="<pad>", unk_token="<unk>")
    model = shaken(kind(transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=64,
        bos_token_id=None, eos_token_id=None, pad_token_id=0, **config)), 2)
    model.save_pretrained(folder)
    return model, tokenizer


def t5(folder, **config):
    tokenizer = trained_tokenizer(
        folder, tokenizers.models.Unigram(),
        tokenizers.trainers.UnigramTrainer(special_tokens=["<pad>", "</s>", "<unk>"],
                                           unk_token="<unk>", vocab_size=150),
        "$A </s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    model = shaken(transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=len(tokenizer), num_heads=4, num_layers=2, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=1, **config)), 3)
    model.save_pretrained(folder)
    return model, tokenizer
