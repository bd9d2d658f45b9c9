"""The eight blocks: models of transformers with random weights, one entry each, and their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Block(NamedTuple):
    """A model with one or two layers, and what it is called with."""

    model: nn.Module
    inputs: Mapping[str, Tensor]


#: Makes a block of so many layers, small ones for a machine without a GPU.
Make = Callable[[int, bool], Block]
WORDS = 1024


def _decoder(model: str, sizes: Mapping[str, Any], small: Mapping[str, Any], batch: tuple[int, int]) -> Make:
    """A model that reads tokens: `<model>Model` of a `<model>Config`."""

    def make(layers: int, is_small: bool) -> Block:
        transformers = import_module("transformers")
        config = getattr(transformers, f"{model}Config")(
            **{**sizes, **(small if is_small else {})}, num_hidden_layers=layers, vocab_size=WORDS, use_cache=False
        )
        return Block(getattr(transformers, f"{model}Model")(config), _tokens(batch, is_small))

    return make


def _tokens(batch: tuple[int, int], is_small: bool) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, WORDS, (2, 16) if is_small else batch)}


def _bert(layers: int, is_small: bool) -> Block:
    transformers = import_module("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4} if is_small else {}
    dropped = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(**sizes, **dropped, num_hidden_layers=layers, vocab_size=WORDS)
    return Block(transformers.BertModel(config, add_pooling_layer=False), _tokens((16, 512), is_small))


def _vit(layers: int, is_small: bool) -> Block:
    transformers = import_module("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "image_size": 32} if is_small else {}
    config = transformers.ViTConfig(**sizes, num_hidden_layers=layers)
    images = torch.randn(2 if is_small else 32, 3, config.image_size, config.image_size)
    return Block(transformers.ViTModel(config, add_pooling_layer=False), {"pixel_values": images})


def _t5(layers: int, is_small: bool) -> Block:
    transformers = import_module("transformers")
    sizes = {"d_model": 64, "d_ff": 96, "num_heads": 4, "d_kv": 16} if is_small else {}
    large = {"d_model": 1024, "d_ff": 2816, "num_heads": 16, "d_kv": 64}  # flan-t5-large
    ending = {"feed_forward_proj": "gated-gelu", "dropout_rate": 0.0}
    config = transformers.T5Config(**(sizes or large), **ending, num_layers=layers, vocab_size=WORDS)
    return Block(transformers.T5EncoderModel(config), _tokens((8, 512), is_small))


def _whisper(layers: int, is_small: bool) -> Block:
    transformers = import_module("transformers")
    encoder = import_module("transformers.models.whisper.modeling_whisper").WhisperEncoder
    sizes = {"d_model": 64, "encoder_ffn_dim": 96, "encoder_attention_heads": 4, "max_source_positions": 16}
    medium = {"d_model": 1024, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16}
    config = transformers.WhisperConfig(**(sizes if is_small else medium), encoder_layers=layers, dropout=0.0)
    sound = torch.randn(2 if is_small else 4, config.num_mel_bins, 2 * config.max_source_positions)
    return Block(encoder(config), {"input_features": sound})


def _gpt2(layers: int, is_small: bool) -> Block:
    transformers = import_module("transformers")
    sizes = {"n_embd": 64, "n_head": 4} if is_small else {"n_embd": 1024, "n_head": 16}  # gpt2-medium
    dropped = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    config = transformers.GPT2Config(**sizes, **dropped, **ends, n_layer=layers, vocab_size=WORDS)
    return Block(transformers.GPT2Model(config), _tokens((8, 512), is_small))


_SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
_LLAMA = {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8}
_QWEN = {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2}
_MIXTRAL = {
    "hidden_size": 2048, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 8,
    "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
BLOCKS: dict[str, Make] = {
    "Llama": _decoder("Llama", _LLAMA, _SMALL, (8, 1024)),  # widths of Llama 3.2 1B
    "Qwen": _decoder("Qwen2", _QWEN, _SMALL, (8, 1024)),  # of Qwen2 1.5B
    "Mixtral": _decoder("Mixtral", _MIXTRAL, _SMALL, (4, 1024)),
    "BERT": _bert,
    "ViT": _vit,
    "T5": _t5,
    "Whisper": _whisper,
    "GPT-2": _gpt2,
}
