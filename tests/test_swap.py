"""Prime attention in models that know nothing of it; models of other packages are in tests/integrations."""

import copy
import io
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.nn.attention import Prime, attend, attention_weights, join_heads, split_heads
from primecast.nn.primer import Primer
from primecast.nn.swap import priming, swap_attention
from primecast.nn.swap_adapters import Adapter, Attend, HeadsForward, TokensForward, output_and_weights

B, N, L, D, H = 3, 5, 17, 14, 2
LIVELY = {"kind": "full", "base": "identity", "gain": 0.7}


def tokens(count: int = N, width: int = D) -> Tensor:
    return torch.randn(B, count, width, dtype=torch.float64)


def series() -> Tensor:
    return torch.randn(B, N, L, dtype=torch.float64).cumsum(-1)


def same(one: Any, other: Any) -> None:
    assert_close(one, other, rtol=0, atol=1e-10)


class Variates(nn.Module):
    """A little channel transformer as somebody else would write it."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(L, D)
        layer = nn.TransformerEncoderLayer(D, H, dim_feedforward=11, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x.mT))).mT


def variates() -> Variates:
    model = Variates().double().eval()
    for layer in model.encoder.layers:  # clones start equal; a model in use has layers of their own
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.3)
    return model


# ---------------------------------------------------------------- nn.MultiheadAttention is what it was

MULTIHEADS: list[dict[str, Any]] = [
    {"batch_first": True},
    {"batch_first": False},
    {"batch_first": True, "bias": False},
    {"batch_first": True, "kdim": 11, "vdim": 13},
    {"batch_first": False, "vdim": 13},
]


@pytest.mark.parametrize("options", MULTIHEADS, ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_a_unit_primer_leaves_multihead_attention_unchanged(
    options: dict[str, Any], need_weights: bool, average: bool
) -> None:
    attention = nn.MultiheadAttention(D, H, **options).double().eval()
    q, k, v = tokens(), tokens(7, options.get("kdim", D)), tokens(7, options.get("vdim", D))
    if not options["batch_first"]:
        q, k, v = (z.transpose(0, 1) for z in (q, k, v))
    call = {"need_weights": need_weights, "average_attn_weights": average}
    before = attention(q, k, v, **call)
    swap_attention(attention, primer=None)
    ones = torch.ones(B, N, 7, D, dtype=torch.float64)
    same(attention(q, k, v, prime=ones, **call), before)
    same(attention(q, k, v, prime=None, **call), before)
    other, _ = attention(q, k, v, prime=2 * ones, **call)
    assert not torch.allclose(other, before[0])


MASKS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "causal": lambda: {"attn_mask": torch.ones(N, N, dtype=torch.bool).triu(1)},
    "added": lambda: {"attn_mask": torch.randn(N, N, dtype=torch.float64)},
    "of each head": lambda: {"attn_mask": torch.randn(B * H, N, N, dtype=torch.float64)},
    "forbidden by head": lambda: {"attn_mask": torch.rand(B * H, N, N).cummax(-1).indices == 0},
    "padding": lambda: {"key_padding_mask": torch.arange(N) >= torch.tensor([[5], [3], [2]])},
    "added padding": lambda: {"key_padding_mask": torch.randn(B, N, dtype=torch.float64)},
    "both": lambda: {
        "attn_mask": torch.ones(N, N, dtype=torch.bool).triu(1),
        "key_padding_mask": torch.arange(N) >= torch.tensor([[5], [3], [2]]),
    },
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_masks_mean_what_they_mean_to_torch(name: str, need_weights: bool) -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).double()
    x, masks = tokens(), MASKS[name]()
    if name == "forbidden by head":
        masks["attn_mask"][..., -1] = False  # a row without any key is NaN by torch's own rules
    before = attention(x, x, x, need_weights=need_weights, **masks)
    assert not torch.allclose(before[0], attention(x, x, x)[0])
    swap_attention(attention, length=L)
    with priming(attention, series()):
        same(attention(x, x, x, need_weights=need_weights, **masks), before)


def test_the_weights_returned_are_those_used() -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).double()
    swap_attention(attention, length=L, primer=LIVELY)
    x = tokens()
    with priming(attention, series()):
        out, weights = attention(x, x, x, average_attn_weights=False)
        same(out, attention(x, x, x, need_weights=False)[0])
    assert weights.shape == (B, H, N, N)
    same(weights.sum(-1), torch.ones(B, H, N, dtype=torch.float64))


def test_one_sequence_without_a_batch_is_a_batch_of_one() -> None:
    attention = nn.MultiheadAttention(D, H).double()
    x = tokens()[0]
    before = attention(x, x, x)
    swap_attention(attention, length=L)
    with priming(attention, series()[:1]):
        same(attention(x, x, x), before)


def test_dropout_is_drawn_in_training_only() -> None:
    attention = nn.MultiheadAttention(D, H, dropout=0.5, batch_first=True).double()
    swap_attention(attention, length=L)
    x = tokens()
    with priming(attention, series()):
        assert not torch.allclose(attention(x, x, x)[0], attention(x, x, x)[0])
        attention.eval()
        same(attention(x, x, x), attention(x, x, x))


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_keys_that_belong_to_no_token_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(
        InputError, match="MultiheadAttention cannot be swapped: add_bias_kv and add_zero_attn add keys"
    ):
        swap_attention(nn.MultiheadAttention(D, H, **options), length=L)


def test_causality_needs_its_mask_as_torch_says() -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).double()
    swap_attention(attention, length=L)
    with pytest.raises(InputError, match="give attn_mask"), priming(attention, series()):
        x = tokens()
        attention(x, x, x, is_causal=True)


# ---------------------------------------------------------------- transformers of torch


@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_is_unchanged_by_a_unit_primer_also_on_its_shortcut(training: bool) -> None:
    """In eval mode without gradient torch goes around self_attn.forward; a swapped encoder must not."""
    model = variates()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    model.train(training)
    x = series().mT
    with torch.set_grad_enabled(training):
        before = model(x)
        swap_attention(model, length=L)
        with priming(model, x.mT):
            same(model(x), before)
        with priming(model, torch.full((B, N, N, D), 2.0, dtype=torch.float64)):
            assert not torch.allclose(model(x), before)


def test_an_encoder_with_padding_is_unchanged_though_torch_would_nest_its_tensors() -> None:
    model = variates()
    x, padding = tokens(), torch.arange(N) >= torch.tensor([[5], [3], [2]])
    with torch.inference_mode(), pytest.warns(UserWarning, match="nested tensors"):
        before = model.encoder(x, src_key_padding_mask=padding)
    report = swap_attention(model, length=L)
    with torch.inference_mode(), priming(model, series()):
        after = model.encoder(x, src_key_padding_mask=padding)
    same(after[~padding], before[~padding])
    report.undo()
    assert model.encoder.use_nested_tensor


def test_a_decoder_swaps_what_where_chooses() -> None:
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, 11, batch_first=True), 2).double().eval()
    x, memory = tokens(), tokens(7)
    before = decoder(x, memory)
    report = swap_attention(decoder, length=L, where=lambda path, module: path.endswith("self_attn"))
    assert [place.path for place in report.places] == ["layers.0.self_attn", "layers.1.self_attn"]
    with priming(decoder, series()):
        same(decoder(x, memory), before)


# ---------------------------------------------------------------- learning


def test_after_a_few_steps_of_training_it_is_another_model_and_the_gradient_reached_the_primer() -> None:
    model = variates()
    x, y = series().mT, torch.randn(B, 3, N, dtype=torch.float64)
    before = model(x)
    report = swap_attention(model, length=L, series=lambda x: x.mT)
    same(model(x), before)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    report.primers.requires_grad_(True)
    optimizer = torch.optim.Adam(report.primers.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in report.primers.parameters())
    assert (model(x) - before).abs().max() > 1e-4
    with priming(model, None):  # the kept weights are what they were
        same(model(x), before)
    report.undo()
    same(model(x), before)


def test_the_swapped_attention_is_primecasts_own() -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).double()
    report = swap_attention(attention, length=L, primer=LIVELY, modulate="v")
    x, known = tokens(), series()
    q, k, v = (
        split_heads(nn.functional.linear(x, w, b), H)
        for w, b in zip(attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True)
    )
    prime = report.primers[0](known)
    with priming(attention, known):
        same(attention(x, x, x)[0], attention.out_proj(join_heads(attend(q, k, v, prime=prime, modulate="v"))))


# ---------------------------------------------------------------- primers: shared, by layer, each its own


def test_one_primer_serves_all_or_each_has_gains_or_a_primer_of_its_own() -> None:
    shared, layered, apart = variates(), variates(), variates()
    assert [p.number for p in swap_attention(shared, length=L).places] == [0, 0]
    report = swap_attention(layered, length=L, primer={**LIVELY, "layers": True})
    assert [p.layer for p in report.places] == [0, 1] and report.primers[0].get_parameter("gains").shape[0] == 2
    assert [p.number for p in swap_attention(apart, length=L, share=False).places] == [0, 1]
    x = series().mT
    with priming(layered, x.mT):
        before = layered(x)
        with torch.no_grad():
            report.primers[0].get_parameter("gains")[1] += 1
    with priming(layered, x.mT):
        assert not torch.allclose(layered(x), before)


def test_attentions_of_different_widths_get_primers_of_their_widths() -> None:
    model = nn.ModuleList([nn.MultiheadAttention(D, H), nn.MultiheadAttention(15, 3), nn.MultiheadAttention(D, H)])
    report = swap_attention(model, length=L)
    assert [p.number for p in report.places] == [0, 1, 0] and len(report.primers) == 2
    with pytest.raises(InputError, match=r"one ready primer of width 14 and 2 heads cannot serve"):
        swap_attention(
            nn.ModuleList([nn.MultiheadAttention(15, 3)]), primer=Primer("full", length=L, d_model=D, n_heads=H)
        )


def test_tokens_without_a_series_have_unit_primers() -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).double()
    report = swap_attention(attention, length=L, primer=LIVELY, bare=(2, 1))
    x, known = tokens(N + 3), series()
    inner = report.primers[0](known).materialize()
    filters = torch.ones(B, N + 3, N + 3, D, dtype=torch.float64)
    filters[:, 2:-1, 2:-1] = inner
    with priming(attention, known):
        same(attention(x, x, x), attention(x, x, x, prime=filters))


# ---------------------------------------------------------------- feeding


def test_a_call_that_is_fed_nothing_is_an_error_and_none_is_standard_attention() -> None:
    model = variates()
    x = series().mT
    before = model(x)
    swap_attention(model, length=L, primer=LIVELY)
    with pytest.raises(InputError, match=r"encoder.layers.0.self_attn has prime attention but was fed nothing"):
        model(x)
    with priming(model, None):
        same(model(x), before)


def test_the_innermost_feed_counts_and_only_for_its_own_swap() -> None:
    model, other = variates(), variates()
    report = swap_attention(model, length=L, primer=LIVELY)
    swap_attention(other, length=L, primer=LIVELY)
    one, two = series(), series()
    with priming(report, one):
        first = model(one.mT)
        with priming(model, two), priming(other, one):
            assert not torch.allclose(model(one.mT), first)
            other(one.mT)
        same(model(one.mT), first)
        with pytest.raises(InputError, match="fed nothing"):
            other(one.mT)


def test_threads_do_not_feed_one_another() -> None:
    model = variates()
    swap_attention(model, length=L)
    failures = []

    def call() -> None:
        try:
            model(series().mT)
        except InputError as error:
            failures.append(str(error))

    with priming(model, series()):
        model(series().mT)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert len(failures) == 1 and "fed nothing" in failures[0]


def test_a_model_that_fails_inside_leaves_no_feed_behind() -> None:
    model = variates()
    swap_attention(model, length=L, series=lambda x: x.mT)
    with pytest.raises(RuntimeError):
        model(torch.zeros(B, L + 1, N, dtype=torch.float64))
    with pytest.raises(InputError, match="fed nothing"):
        model.encoder(tokens())


@pytest.mark.parametrize("kind", ["nothing", "other series", "a ready F"])
def test_what_is_fed_from_outside_comes_before_what_the_model_feeds_itself(kind: str) -> None:
    model, plain = variates(), variates()
    plain.load_state_dict(model.state_dict())
    report = swap_attention(model, length=L, primer=LIVELY, series=lambda x: x.mT)
    x, other = series().mT, series()
    given = {"nothing": None, "other series": other, "a ready F": report.primers[0](other).materialize()}[kind]
    own = model(x)
    with priming(model, given):
        fed = model(x)
    assert not torch.allclose(fed, own)
    same(model(x), own)
    if kind == "nothing":
        same(fed, plain(x))
    else:
        swap_attention(plain, primer=report.primers[0])
        with priming(plain, other):
            same(fed, plain(x))


def test_a_model_that_calls_itself_feeds_each_call_by_its_own_arguments() -> None:
    class Rolling(Variates):
        def forward(self, x: Tensor, again: bool = True) -> Tensor:
            forecast = super().forward(x)
            return self(torch.cat([x[:, 3:], forecast], dim=1), again=False) if again else forecast

    model = Rolling().double().eval()
    swap_attention(model, length=L, primer=LIVELY, series=lambda x, again=True: x.mT)
    x = series().mT
    same(model(x), model(torch.cat([x[:, 3:], model(x, again=False)], dim=1), again=False))


class Around(nn.Module):
    """Uses the weights of its attention without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        a = self.attention
        z = x.transpose(0, 1)
        out, _ = nn.functional.multi_head_attention_forward(
            z, z, z, D, H, a.in_proj_weight, a.in_proj_bias, None, None, False, 0.0, a.out_proj.weight, a.out_proj.bias
        )
        return out.transpose(0, 1)


@pytest.mark.parametrize("training", [True, False])
def test_a_model_that_goes_around_its_swapped_attention_is_refused(training: bool) -> None:
    model = Around().double().train(training)
    x, known = tokens(), series()
    report = swap_attention(model, length=L)
    with pytest.raises(InputError, match="no swapped attention read what was fed"), priming(model, known):
        model(x)
    with pytest.raises(InputError, match="no swapped attention read what was fed"), priming(report, known):
        model(x)
    with priming(model, None):
        standard = model(x)
    report.undo()
    same(model(x), standard)
    swap_attention(model, length=L, series=lambda x: known)
    with pytest.raises(InputError, match="no swapped attention read what was fed"):
        model(x)


def test_a_model_that_drops_its_layers_in_training_now_and_then_is_not_refused() -> None:
    class Dropping(Variates):
        keeps = True

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if self.keeps else self.head(self.embed(x.mT)).mT

    model = Dropping().double().train()
    swap_attention(model, length=L, series=lambda x: x.mT)
    x = series().mT
    model(x)
    model.keeps = False
    model(x)
    model.eval()
    with pytest.raises(InputError, match="no swapped attention read"):
        model(x)


def test_a_copy_feeds_itself_and_learns_alone() -> None:
    model = variates()
    swap_attention(model, length=L, primer=LIVELY, series=lambda x: x.mT)
    x = series().mT
    twin = copy.deepcopy(model)
    same(twin(x), model(x))
    with torch.no_grad():
        twin.encoder.layers[0].self_attn.primer.gains.zero_()
    assert not torch.allclose(twin(x), model(x))


def test_the_primer_runs_once_for_all_layers() -> None:
    model = variates()
    report = swap_attention(model, length=L)
    calls = []
    report.primers[0].register_forward_hook(lambda *_: calls.append(1))
    with priming(model, series()):
        model(series().mT)
    assert len(calls) == 1


def turned(x: Tensor) -> Tensor:
    return x.mT


def test_a_swapped_model_can_be_pickled_and_goes_on_feeding_itself() -> None:
    model = variates()
    swap_attention(model, length=L, primer=LIVELY, series=turned)
    x = series().mT
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    other = torch.load(file, weights_only=False)
    same(other(x), model(x))
    assert type(other.encoder.layers[0].self_attn).__name__ == "PrimedMultiheadAttention"
    with torch.no_grad():
        other.encoder.layers[0].self_attn.primer.gains.zero_()
    assert not torch.allclose(other(x), model(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("masked", [False, True])
def test_a_model_in_half_precision_can_be_swapped(dtype: torch.dtype, masked: bool) -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).to(dtype)
    x = tokens().to(dtype)
    mask = torch.ones(N, N, dtype=torch.bool).triu(1) if masked else None
    before, _ = attention(x, x, x, attn_mask=mask)
    swap_attention(attention, length=L)
    with priming(attention, series()):
        after, _ = attention(x, x, x, attn_mask=mask)
    assert after.dtype == dtype
    assert_close(after, before, rtol=0.05, atol=0.05)


# ---------------------------------------------------------------- what stays, what is reported


def test_weights_keep_their_names_and_the_primer_is_beside_them() -> None:
    model = variates()
    before = dict(model.state_dict())
    own = dict(model.named_parameters())
    report = swap_attention(model, length=L)
    after = model.state_dict()
    assert list(before) == [name for name in after if ".primer." not in name]
    assert all(dict(model.named_parameters())[name] is parameter for name, parameter in own.items())
    assert {name for name in after if ".primer." in name} == {
        f"encoder.layers.0.self_attn.primer.{name}" for name in report.primers[0].state_dict()
    }
    assert next(report.primers.parameters()).dtype == torch.float64
    assert isinstance(model.encoder.layers[0].self_attn, nn.MultiheadAttention)
    assert type(model.encoder.layers[0].self_attn).__name__ == "PrimedMultiheadAttention"


def test_the_report_is_a_table() -> None:
    home = "encoder.layers.0.self_attn.primer"
    assert str(swap_attention(variates(), length=L)).splitlines() == [
        "path                        class               d_model  heads  primer",
        f"encoder.layers.0.self_attn  MultiheadAttention  14       2      {home}",
        f"encoder.layers.1.self_attn  MultiheadAttention  14       2      {home}",
    ]


def test_a_second_swap_takes_what_is_left_and_feeds_apart() -> None:
    model = variates()
    first = swap_attention(model, length=L, where=lambda path, module: ".0." in path)
    second = swap_attention(model, length=L)
    assert [p.path for p in (*first.places, *second.places)] == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
    ]
    with priming(first, series()), priming(second, series()):
        model(series().mT)


def test_undo_puts_everything_back() -> None:
    model = variates()
    x = series().mT
    before, names = model(x), list(model.state_dict())
    swap_attention(model, length=L, primer=LIVELY, series=lambda x: x.mT).undo()
    assert type(model.encoder.layers[0].self_attn) is nn.MultiheadAttention
    assert list(model.state_dict()) == names
    same(model(x), before)


class Named(nn.MultiheadAttention):
    """Has something named primer."""

    def __init__(self, *, part: bool) -> None:
        super().__init__(D, H, batch_first=True)
        self.primer = nn.Linear(2, 3) if part else "a name of its own"


@pytest.mark.parametrize("part", [True, False])
def test_a_name_that_is_taken_is_refused_and_the_model_is_as_it_was(part: bool) -> None:
    model = nn.ModuleList([nn.MultiheadAttention(D, H, batch_first=True), Named(part=part)])
    names, kept = list(model.state_dict()), model[1].primer
    with pytest.raises(InputError, match="1 has something named primer already, where its primer would live"):
        swap_attention(model, length=L, share=False)
    assert list(model.state_dict()) == names and model[1].primer is kept
    assert [type(module) for module in model] == [nn.MultiheadAttention, Named]
    swap_attention(model, length=L)  # the one primer lives in the first


def test_a_swap_that_fails_on_the_way_leaves_the_model_as_it_was() -> None:
    class Stubborn(nn.MultiheadAttention):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "prime_place":
                raise RuntimeError("not with me")
            super().__setattr__(name, value)

    model = nn.ModuleList([nn.MultiheadAttention(D, H), Stubborn(D, H)])
    before = [(type(module), sorted(vars(module)), module._qkv_same_embed_dim) for module in model]
    names = list(model.state_dict())
    with pytest.raises(RuntimeError, match="not with me"):
        swap_attention(model, length=L)
    assert list(model.state_dict()) == names
    assert [(type(module), sorted(vars(module)), module._qkv_same_embed_dim) for module in model] == before


# ---------------------------------------------------------------- adapters


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.37
        self.dropout = nn.Dropout(0.3)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        weights = self.dropout((torch.einsum("bnhk,bmhk->bhnm", q, k) * self.scale).softmax(-1))
        return torch.einsum("bhnm,bmhk->bnhk", weights, v), None


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ask, self.show, self.give, self.join = (nn.Linear(D, D) for _ in range(4))
        self.many = H
        self.inner = Inner()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        heads = [layer(x).unflatten(-1, (H, -1)) for layer in (self.ask, self.show, self.give)]
        return self.join(self.inner(*heads, mask)[0].flatten(-2))


BY_HEADS = Adapter(
    target="Outer",
    at="inner",
    shape=lambda module: (module.ask.out_features, module.many),
    forward=HeadsForward(layout="b n h k", dropout="dropout", scale="scale", returns=output_and_weights),
)


def by_tokens(**other: str) -> Adapter:
    names = {"query": "ask", "key": "show", "value": "give", "out": "join", "heads": "many"} | other
    return Adapter(
        target=Outer,
        shape=lambda module: (module.ask.out_features, module.many),
        forward=TokensForward(**names),  # type: ignore[arg-type]
    )


BY_TOKENS = by_tokens()


@pytest.mark.parametrize("adapter", [BY_HEADS, BY_TOKENS], ids=["heads", "tokens"])
def test_a_class_of_your_own_takes_a_small_adapter(adapter: Adapter) -> None:
    model = nn.Sequential(Outer(), Outer()).double().eval()
    if adapter is BY_TOKENS:  # its forward replaces the scale as well
        for outer in model:
            assert isinstance(outer, Outer)
            outer.inner.scale = (D / H) ** -0.5
    x = tokens()
    before = model(x)
    report = swap_attention(model, length=L, adapters=[adapter])
    assert [p.path for p in report.places] == (["0.inner", "1.inner"] if adapter is BY_HEADS else ["0", "1"])
    known = series()
    with priming(model, known):
        same(model(x), before)
    nn.init.normal_(report.primers[0].get_parameter("gains"))
    with priming(model, known):
        assert not torch.allclose(model(x), before)
    with priming(model, known), pytest.raises(InputError, match="which the adapter does not understand"):
        model[0](x, torch.ones(N, N)) if adapter is BY_HEADS else model[0](x, mask=torch.ones(N, N))


class Unprojected(nn.Module):
    """Self-attention as BERT has it: no output projection, masks, weights on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(D, D) for _ in range(3))
        self.heads = H

    def forward(self, hidden: Tensor, mask: Tensor | None = None, *, weigh: bool = False) -> tuple[Tensor, Any]:
        q, k, v = (split_heads(layer(hidden), H) for layer in (self.query, self.key, self.value))
        scores = q @ k.mT / (D / H) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        weights = scores.softmax(-1)
        return join_heads(weights @ v), weights if weigh else None


UNPROJECTED = Adapter(
    target=Unprojected,
    shape=lambda module: (D, module.heads),
    forward=TokensForward(
        query="query",
        key="key",
        value="value",
        heads="heads",
        mask="mask",
        weights=lambda module, others: others.pop("weigh", False),
        returns=output_and_weights,
    ),
)


@pytest.mark.parametrize("kind", ["none", "boolean", "added"])
@pytest.mark.parametrize("weigh", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_attention_without_an_output_projection_takes_masks_and_returns_weights(
    kind: str, weigh: bool, named: bool
) -> None:
    module = Unprojected().double()
    x, allowed = tokens(), torch.ones(1, 1, N, N, dtype=torch.bool).tril()
    mask = {"none": None, "boolean": allowed, "added": torch.randn(B, 1, N, N, dtype=torch.float64)}[kind]

    def call() -> tuple[Tensor, Any]:
        return module(hidden=x, mask=mask, weigh=weigh) if named else module(x, mask, weigh=weigh)

    before = call()
    report = swap_attention(module, length=L, adapters=[UNPROJECTED])
    with priming(module, series()):
        same(call(), before)
    with torch.no_grad():
        report.primers[0].get_parameter("gains").normal_()
    with priming(module, series()):
        assert not torch.allclose(call()[0], before[0])
    with pytest.raises(InputError, match="was called without hidden"), priming(module, series()):
        module()


def test_an_adapters_attend_is_that_of_the_package_and_says_weights_by_name() -> None:
    q, k, v = (split_heads(tokens(), H) for _ in range(3))
    prime = Primer("full", length=L, d_model=D, n_heads=H).double()(series())
    bias = torch.randn(1, 1, N, N, dtype=torch.float64)
    ours = Attend("layer", prime, "kv")
    cases: list[dict[str, Any]] = [{}, {"bias": bias}, {"mask": bias > 0}, {"position": lambda x: x.flip(-1)}]
    for more in cases:
        expected = attend(q, k, v, prime=prime, **more)
        same(ours(q, k, v, **more), expected)
        mixed, weights = ours.with_weights(q, k, v, **more)
        same(mixed, expected)
        same(weights, attention_weights(q, k, prime=prime, **more))


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (by_tokens(key="sho"), "unknown attribute of Outer 'sho' .did you mean 'show'.*; allowed: ask, give, inner"),
        (by_tokens(out="joint"), "unknown attribute of Outer 'joint'"),
        (by_tokens(dropout="rate"), "unknown attribute of Outer 'rate'"),
        (replace(BY_HEADS, forward=HeadsForward(scale="factor")), "unknown attribute of Inner 'factor'"),
        (replace(BY_HEADS, at="iner"), "unknown submodule of Outer 'iner' .did you mean 'inner'"),
        (replace(BY_TOKENS, switches={"fast": False}), "unknown attribute of Outer 'fast'"),
        (replace(BY_TOKENS, shape=lambda module: (module.wide, 2)), "the shape of its adapter fails: .* 'wide'"),
        (replace(BY_TOKENS, shape=lambda module: (D, 3)), "gives width 14 and 3 heads, which do not divide it"),
    ],
)
def test_a_wrong_name_in_an_adapter_fails_at_the_swap_and_leaves_the_model_as_it_was(
    adapter: Adapter, message: str
) -> None:
    model = nn.Sequential(Outer(), Outer())
    names = list(model.state_dict())
    with pytest.raises(InputError, match=message):
        swap_attention(model, length=L, adapters=[adapter])
    assert list(model.state_dict()) == names and {type(module) for module in model} == {Outer}


def outer_shape(module: Outer) -> tuple[int, int]:
    return module.ask.out_features, module.many


def test_a_model_swapped_by_an_adapter_can_be_pickled() -> None:
    model = Outer().double().eval()
    swap_attention(model, length=L, primer=LIVELY, adapters=[replace(BY_TOKENS, shape=outer_shape)])
    other = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    x, known = tokens(), series()
    with priming(model, known):
        expected = model(x)
    for twin in (other, torch.load(file, weights_only=False)):
        with priming(twin, known):
            same(twin(x), expected)


def test_an_adapter_passes_over_what_it_does_not_mean() -> None:
    first = replace(BY_TOKENS, when=lambda module: module.many == H and not module.inner.training)
    model = nn.Sequential(Outer().eval(), Outer())
    assert [place.path for place in swap_attention(model, length=L, adapters=[first]).places] == ["0"]


def test_an_adapter_finds_the_dropout() -> None:
    model = Outer().double()
    swap_attention(model, length=L, adapters=[BY_HEADS])
    with priming(model, series()):
        x = tokens()
        assert not torch.allclose(model(x), model(x))


# ---------------------------------------------------------------- bad input


class Rolled(nn.MultiheadAttention):
    """Does something to its queries first."""

    def forward(self, query: Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(query.roll(1, dims=0), *args, **kwargs)


def patched() -> nn.MultiheadAttention:
    module = nn.MultiheadAttention(D, H)
    module.forward = lambda *args, **kwargs: args[0]  # type: ignore[method-assign]
    return module


def test_why_there_is_nothing_to_swap_is_said() -> None:
    model = variates()
    with pytest.raises(InputError, match=r"no attention to swap in Variates: where= leaves out encoder.layers.0.self_"):
        swap_attention(model, length=L, where=lambda path, module: False)
    swap_attention(model, length=L)
    with pytest.raises(
        InputError, match=r"encoder.layers.0.self_attn, encoder.layers.1.self_attn has been swapped alr"
    ):
        swap_attention(model, length=L)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: swap_attention(nn.Linear(3, 2)),
            "no attention to swap in Linear: no adapter fits any of its modules: Linear",
        ),
        (lambda: swap_attention(nn.MultiheadAttention(D, H)), "length is needed to make a primer"),
        (lambda: swap_attention(nn.MultiheadAttention(D, H), length=L, primer="ful"), "did you mean 'full'"),
        (lambda: swap_attention(nn.MultiheadAttention(D, H), length=L, primer="random"), "give tokens"),
        (lambda: swap_attention(nn.MultiheadAttention(D, H), length=L, primer={"pair_offsets": True}), "give tokens"),
        (lambda: swap_attention(Rolled(D, H), length=L), "Rolled cannot be swapped: its class Rolled has a forward of"),
        (lambda: swap_attention(patched(), length=L), "has a forward of its own, which would be lost: give an adapter"),
        (lambda: swap_attention(nn.MultiheadAttention(D, H), length=L, modulate="q"), "unknown modulate 'q'"),
        (lambda: swap_attention(nn.MultiheadAttention(D, H), length=L, bare=(-1, 0)), r"bare is \(-1, 0\); it must be"),
        (lambda: priming(nn.Linear(3, 2), None).__enter__(), "Linear has no swapped attention"),
        (lambda: HeadsForward(layout="b k"), "unknown layout 'b k'"),
    ],
)
def test_what_cannot_be_swapped_is_said(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(B, L), r"series have shape \(batch, tokens, length\).* got \(3, 17\)"),
        (torch.zeros(B, N, L + 1), "made for a look-back of 17 steps, the windows have 18"),
        (torch.zeros(B, N + 1, L), r"covers 6 x 6 token pairs, the attention has 5 x 5"),
        (torch.zeros(B + 1, N, L), "MultiheadAttention: the primer has batch 4 and width 14, the attention 3 and 14"),
    ],
)
def test_series_of_another_shape_are_refused(given: Tensor, message: str) -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).double()
    swap_attention(attention, length=L)
    x = tokens()
    with pytest.raises(InputError, match=message), priming(attention, given):
        attention(x, x, x)


def test_a_swap_without_a_primer_wants_a_ready_one() -> None:
    attention = nn.MultiheadAttention(D, H, batch_first=True).double()
    swap_attention(attention, primer=None)
    x = tokens()
    with pytest.raises(InputError, match="feed it a Prime, not series"), priming(attention, series()):
        attention(x, x, x)
    prime = Prime(torch.ones(B, 1, 1, N, N).double(), torch.ones(H, 1, D // H).double())
    with priming(attention, None):
        standard = attention(x, x, x)
    with priming(attention, prime):
        same(attention(x, x, x), standard)
