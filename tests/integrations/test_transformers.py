"""Prime attention in Hugging Face's PatchTST: tokens are patches of one channel, so each patch is a token's series."""

import pytest
import torch
from torch import Tensor, nn

from primecast.nn.swap import swap_attention
from primecast.nn.swap_adapters import Adapter, of_tokens
from tests.integrations.foreign import is_unchanged_until_it_is_trained

transformers = pytest.importorskip("transformers", reason="run by `make test-all`, in an environment with transformers")

PATCH, STRIDE = 5, 3
ADAPTER = Adapter(
    target="PatchTSTAttention",
    shape=lambda module: (module.embed_dim, module.num_heads),
    forward=of_tokens(
        tokens="hidden_states",
        query="q_proj",
        key="k_proj",
        value="v_proj",
        out="out_proj",
        heads="num_heads",
        dropout="dropout",
        returns=lambda out, weights: (out, weights),
    ),
)


def patches(past_values: Tensor) -> Tensor:
    """(b, l, n) -> (b n, patches, steps of a patch): what the model attends over, before its embedding."""
    return past_values.mT.unfold(-1, PATCH, STRIDE).flatten(0, 1)


@pytest.mark.parametrize("cls_token", [False, True])
def test_it_is_unchanged_until_it_is_trained(cls_token: bool) -> None:
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
        init_std=0.3,  # weights of a size at which attention matters; its default of 0.02 leaves almost none
    )
    model: nn.Module = transformers.PatchTSTForPrediction(config)
    x = torch.randn(3, 20, 7, dtype=torch.float64)
    report = is_unchanged_until_it_is_trained(
        lambda: model(past_values=x).prediction_outputs,
        model,
        lambda: swap_attention(
            model,
            length=PATCH,
            bare=(int(cls_token), 0),
            adapters=[ADAPTER],
            series=lambda past_values: patches(past_values),
        ),
    )
    assert [(place.kind, place.d_model, place.heads) for place in report.places] == [("PatchTSTAttention", 14, 2)] * 2
