"""Prime attention in models of Hugging Face, by the adapters that come with the package."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.nn.swap import priming, swap_attention
from tests.integrations.foreign import is_unchanged_until_it_is_trained

transformers = pytest.importorskip("transformers", reason="run by `make test-all`, in an environment with transformers")

PATCH, STRIDE = 5, 3
LIVELY = {"init_std": 0.3}
"""Weights of a size at which attention matters; the default of 0.02 leaves almost none."""


def paths(report: Any) -> list[tuple[str, str, int, int]]:
    return [(place.path, place.kind, place.d_model, place.heads) for place in report.places]


# ---------------------------------------------------------------- PatchTST: tokens are patches of one channel


def patches(past_values: Tensor) -> Tensor:
    """(b, l, n) -> (b n, patches, steps of a patch): what the model attends over, before its embedding."""
    return past_values.mT.unfold(-1, PATCH, STRIDE).flatten(0, 1)


@pytest.mark.parametrize("cls_token", [False, True])
def test_patchtst_is_unchanged_until_it_is_trained(cls_token: bool) -> None:
    config = transformers.PatchTSTConfig(
        num_input_channels=7,
        context_length=20,
        patch_length=PATCH,
        patch_stride=STRIDE,
        prediction_length=11,
        d_model=14,
        num_attention_heads=2,
        num_hidden_layers=2,
        ffn_dim=13,
        use_cls_token=cls_token,
        **LIVELY,
    )
    model: nn.Module = transformers.PatchTSTForPrediction(config)
    x = torch.randn(3, 20, 7, dtype=torch.float64)
    report = is_unchanged_until_it_is_trained(
        lambda: model(past_values=x).prediction_outputs,
        model,
        lambda: swap_attention(model, length=PATCH, bare=(int(cls_token), 0), series=patches),
    )
    assert [place.kind for place in report.places] == ["PatchTSTAttention"] * 2


# ---------------------------------------------------------------- BERT: attention without an output projection


def bert(implementation: str) -> Any:
    config = transformers.BertConfig(
        vocab_size=31,
        hidden_size=14,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=13,
        max_position_embeddings=11,
        initializer_range=0.5,
        attn_implementation=implementation,
    )
    return transformers.BertModel(config).double().eval()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True])
def test_bert_is_unchanged_until_it_is_trained_also_with_padding(implementation: str, padded: bool) -> None:
    model = bert(implementation)
    embeddings, series = torch.randn(3, 5, 14, dtype=torch.float64), torch.randn(3, 5, 17, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([[5], [3], [2]]) if padded else torch.ones(3, 5, dtype=torch.bool)

    def hidden() -> Tensor:
        return model(inputs_embeds=embeddings, attention_mask=mask.long()).last_hidden_state[mask]

    report = is_unchanged_until_it_is_trained(
        hidden, model, lambda: swap_attention(model, length=17, series=lambda **_: series)
    )
    assert paths(report) == [
        (f"encoder.layer.{layer}.attention.self", "BertSelfAttention", 14, 2) for layer in range(2)
    ]


def test_bert_returns_the_weights_it_is_asked_for() -> None:
    model = bert("eager")
    call = {"inputs_embeds": torch.randn(3, 5, 14, dtype=torch.float64), "output_attentions": True}
    before = model(**call).attentions
    swap_attention(model, length=17)
    with priming(model, torch.randn(3, 5, 17, dtype=torch.float64)):
        assert_close(model(**call).attentions, before, rtol=0, atol=1e-10)


# ---------------------------------------------------------------- ViT: a class token, then patches of an image


def pixels(pixel_values: Tensor) -> Tensor:
    """(b, c, y, x) -> (b, patches, their pixels), row by row."""
    return pixel_values.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def test_vit_is_unchanged_until_it_is_trained() -> None:
    config = transformers.ViTConfig(
        hidden_size=14,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=13,
        image_size=12,
        patch_size=4,
        num_channels=3,
        initializer_range=0.5,
    )
    model = transformers.ViTModel(config, add_pooling_layer=False)
    images = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    report = is_unchanged_until_it_is_trained(
        lambda: model(pixel_values=images).last_hidden_state,
        model,
        lambda: swap_attention(model, length=4 * 4 * 3, bare=(1, 0), series=pixels),
    )
    assert [(place.d_model, place.heads) for place in report.places] == [(14, 2)] * 2


# ---------------------------------------------------------------- encoder and decoder: tokens are time steps

CONTEXT, AHEAD, FEATURES = 19, 7, 3
SIZES: dict[str, Any] = {
    "prediction_length": AHEAD,
    "context_length": CONTEXT,
    "lags_sequence": [1, 2],
    "num_time_features": FEATURES,
    "d_model": 14,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 13,
    "decoder_ffn_dim": 13,
    **LIVELY,
}


def batch() -> dict[str, Tensor]:
    past = CONTEXT + 2  # and the longest lag
    return {
        "past_values": torch.randn(5, past, dtype=torch.float64),
        "past_time_features": torch.randn(5, past, FEATURES, dtype=torch.float64),
        "past_observed_mask": torch.ones(5, past, dtype=torch.float64),
        "future_values": torch.randn(5, AHEAD, dtype=torch.float64),
        "future_time_features": torch.randn(5, AHEAD, FEATURES, dtype=torch.float64),
    }


def steps(past_time_features: Tensor, **_: Any) -> Tensor:
    """The time features of a step are the series of its token."""
    return past_time_features[:, -CONTEXT:]


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "time series transformer": (
        lambda: transformers.TimeSeriesTransformerForPrediction(transformers.TimeSeriesTransformerConfig(**SIZES)),
        "TimeSeriesTransformerAttention",
    ),
    "informer": (
        lambda: transformers.InformerForPrediction(
            transformers.InformerConfig(**SIZES, attention_type="full", distil=False)
        ),
        "InformerAttention",
    ),
    "informer, sparse": (
        lambda: transformers.InformerForPrediction(
            transformers.InformerConfig(**SIZES, attention_type="prob", sampling_factor=2, distil=False)
        ),
        "InformerProbSparseAttention",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_encoder_of_a_forecasting_model_is_unchanged_until_it_is_trained(name: str) -> None:
    build, kind = MODELS[name]
    model, inputs = build(), batch()

    def encoded() -> Tensor:
        torch.manual_seed(0)  # sparse attention draws keys, in eval mode too
        return model(**inputs).encoder_last_hidden_state

    report = is_unchanged_until_it_is_trained(
        encoded, model, lambda: swap_attention(model, length=FEATURES, series=steps)
    )
    assert paths(report) == [(f"model.encoder.layers.{layer}.self_attn", kind, 14, 2) for layer in range(2)]


def test_a_token_count_that_changes_between_layers_is_said() -> None:
    """Informer's distillation halves the tokens between layers, so one series for each token does not fit all."""
    config = transformers.InformerConfig(**SIZES, attention_type="full", distil=True)
    model, inputs = transformers.InformerForPrediction(config).double().eval(), batch()
    report = swap_attention(model, length=FEATURES, series=steps)
    with pytest.raises(InputError, match="layers.1.self_attn: the primer covers 19 x 19 token pairs"):
        model(**inputs)
    report.undo()
    swap_attention(model, length=FEATURES, series=steps, where=lambda path, module: "layers.0" in path)
    model(**inputs)
