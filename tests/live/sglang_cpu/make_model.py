"""Writes ``models/tiny-qwen3moe`` into the current folder: a configuration and a tokenizer trained here, no weights.

The server fills the weights at random (``--load-format dummy``).  2 layers, 8 experts of which 2 are used for a token,
512 token ids, 8192 tokens of context; ``tests/live/server.py`` knows these numbers.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

TEXT = """The quick brown fox jumps over the lazy dog. Hello, world! How are you today?
I think, therefore I am. Let us compute 12 + 30 = 42 and then stop here.
Reinforcement learning of language models needs token ids, log probabilities and rewards.
def add(a, b): return a + b  # a python line
{"key": "value", "list": [1, 2, 3]} data: [DONE]
Äpfel über Straße naïve café. Привет мир. 你好，世界。こんにちは。
"""  # noqa: RUF001  # the point is many scripts

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "max_position_embeddings": 8192,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}


def tokenizer() -> Any:
    """Byte-level pairs, so that characters of several bytes are cut between tokens."""
    library = import_module("tokenizers")
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"],
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1,
    )
    made.train_from_iterator(TEXT.splitlines() * 3, trainer)
    return import_module("transformers").PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        model_max_length=CONFIG["max_position_embeddings"],
        clean_up_tokenization_spaces=False,
    )


if __name__ == "__main__":
    folder = Path("models/tiny-qwen3moe")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 2}))
    tokenizer().save_pretrained(folder)
