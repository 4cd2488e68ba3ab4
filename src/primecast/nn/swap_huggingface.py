"""Adapters for Hugging Face's transformers (from 5.23): BERT, ViT, PatchTST, Informer, Time Series Transformer.

`swap_attention` has them ready; the package itself is not imported. Of the models with a decoder only the encoder is
swapped, whose tokens are known before the call. What a swapped module is called with is as before, masks included; it
returns weights where the model was made with `attn_implementation="eager"`, or is asked by `output_attentions`.

Letters: b batch, h heads, n tokens, k head size.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from primecast.nn.attention import join_heads, split_heads
from primecast.nn.swap_adapters import Adapter, Attend, TokensForward, output_and_weights, refuse_others

IGNORED = ("use_cache", "output_hidden_states", "return_dict")
"""What the models hand down to their attention although it concerns others."""


def _wants_weights(module: Any, others: dict[str, Any]) -> bool:
    return bool(others.pop("output_attentions", False)) or module.config._attn_implementation == "eager"


def _in_encoder(module: Any) -> bool:
    return not module.is_decoder


def _width_of_heads(module: Any) -> tuple[int, int]:
    return module.query.out_features, module.num_attention_heads


def _width_of_projections(module: Any) -> tuple[int, int]:
    return module.q_proj.out_features, module.num_attention_heads


def _embed_dim(module: Any) -> tuple[int, int]:
    return module.embed_dim, module.num_heads


def _prob_sparse(module: Any, attend: Attend, hidden_states: Tensor, **others: Any) -> tuple[Tensor, None]:
    """Compute Informer's attention: of the queries whose scores stand out the output, of the others the mean value.

    Which stand out is decided as before, by unprimed scores with keys drawn at random.
    """
    mask = others.pop("attention_mask", None)
    refuse_others(module, others, IGNORED)
    q, k, v = (
        split_heads(layer(hidden_states), module.num_heads) for layer in (module.q_proj, module.k_proj, module.v_proj)
    )
    tokens = q.shape[2]
    spread = math.ceil(math.log1p(tokens))
    sample = torch.randint(0, tokens, (min(module.factor * tokens * spread, tokens),))
    scores = (q * module.scaling) @ k[:, :, sample].mT  # b h n sample
    prominence = scores.amax(-1) - scores.sum(-1) / tokens
    top = prominence.topk(min(module.factor * spread, tokens), sorted=False).indices
    chosen = torch.zeros_like(prominence, dtype=torch.bool).scatter(-1, top, True)
    rate = module.dropout if module.training else 0.0
    mixed = attend(q, k, v, bias=mask, dropout=rate)
    out = torch.where(chosen[..., None], mixed, v.mean(2, keepdim=True))
    return module.out_proj(join_heads(out)), None


_QUERY_KEY_VALUE = TokensForward(
    query="query",
    key="key",
    value="value",
    heads="num_attention_heads",
    dropout="dropout",
    mask="attention_mask",
    ignored=IGNORED,
    weights=_wants_weights,
    returns=output_and_weights,
)
_PROJECTIONS = replace(
    _QUERY_KEY_VALUE, query="q_proj", key="k_proj", value="v_proj", out="out_proj", heads="num_heads"
)
_OF_VIT = replace(_PROJECTIONS, out="o_proj", heads="num_attention_heads", dropout="attention_dropout")


HUGGING_FACE = (
    Adapter("modeling_bert.BertSelfAttention", _width_of_heads, _QUERY_KEY_VALUE),
    Adapter("modeling_vit.ViTAttention", _width_of_projections, _OF_VIT),
    Adapter("modeling_patchtst.PatchTSTAttention", _embed_dim, _PROJECTIONS),
    Adapter("modeling_informer.InformerAttention", _embed_dim, _PROJECTIONS, when=_in_encoder),
    Adapter("modeling_informer.InformerProbSparseAttention", _embed_dim, _prob_sparse, when=_in_encoder),
    Adapter("TimeSeriesTransformerAttention", _embed_dim, _PROJECTIONS, when=_in_encoder),
)
