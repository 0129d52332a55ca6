"""Makes a tiny Llama with random weights, and trains its tokenizer on this Python's own texts."""

import pathlib
import pydoc_data.topics
import sys

import tokenizers
import torch
import transformers

to = sys.argv[1]
torch.manual_seed(1)
core = tokenizers.Tokenizer(tokenizers.models.BPE())
core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
core.decoder = tokenizers.decoders.ByteLevel()
special = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
core.train_from_iterator(
    list(pydoc_data.topics.topics.values()),
    tokenizers.trainers.BpeTrainer(vocab_size=4096, special_tokens=special,
                                   initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
words = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", pad_token="<|end|>")
words.chat_template = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
words.save_pretrained(to)
config = transformers.LlamaConfig(
    vocab_size=len(words), hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=4, head_dim=64, max_position_embeddings=8192, bos_token_id=None, eos_token_id=words.eos_token_id, tie_word_embeddings=False)
transformers.LlamaForCausalLM(config).save_pretrained(to)
pathlib.Path(to, "README").write_text("Random weights: its answers mean nothing.\n")
