"""Prime attention in the iTransformer of the package of that name; its memory tokens have no series."""

import pytest
import torch
from torch import nn

from primecast.nn.swap import swap_attention
from primecast.nn.swap_adapters import Adapter, HeadsForward
from tests.integrations.foreign import is_unchanged_until_it_is_trained

package = pytest.importorskip("iTransformer", reason="run by `make test-all`, in an environment with iTransformer")

ADAPTER = Adapter(
    target="iTransformer.Attention",
    at="attend",
    shape=lambda module: (module.to_out[1].in_features, module.to_v_gates[0].out_features),
    forward=HeadsForward(dropout="attn_dropout"),
)


@pytest.mark.parametrize("memory", [0, 3])
@pytest.mark.parametrize("flash", [True, False])
def test_it_is_unchanged_until_it_is_trained(memory: int, flash: bool) -> None:
    model: nn.Module = package.iTransformer(
        num_variates=5,
        lookback_len=19,
        depth=2,
        dim=11,
        heads=3,
        dim_head=7,
        pred_length=13,
        num_mem_tokens=memory,
        use_reversible_instance_norm=True,
        flash_attn=flash,
    )
    x = torch.randn(2, 19, 5, dtype=torch.float64)
    report = is_unchanged_until_it_is_trained(
        lambda: model(x),
        model,
        lambda: swap_attention(model, length=19, bare=(memory, 0), adapters=[ADAPTER], series=lambda x: x.mT),
    )
    assert [(place.path, place.d_model, place.heads) for place in report.places] == [
        ("layers.0.0.branch.attend", 21, 3),
        ("layers.1.0.branch.attend", 21, 3),
    ]
