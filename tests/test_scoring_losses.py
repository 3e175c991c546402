"""Token losses: right to fp32, one by one independent, and never a whole tile of logits."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scoring.losses import HEAD_CHUNK, Head, chunk_of, token_losses

PEAK_PROGRAM = """
import resource, torch
from scoring.losses import Head, token_losses

def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

torch.set_num_threads(2)
num_tokens, num_words, width = 8192, 150_000, 64
head = Head(weight_VD=torch.randn(num_words, width))
hidden_ND = torch.randn(num_tokens, width)
targets_N = torch.randint(0, num_words, (num_tokens,))
before = peak_bytes()
losses_N = token_losses(hidden_ND, head, targets_N)
assert losses_N.shape == (num_tokens,)
assert bool(losses_N.isfinite().all())
print(peak_bytes() - before)
"""


def made(num_positions: int, num_words: int, width: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random hidden states [N, D], head weight [V, D] and targets [N]."""
    generator = torch.Generator().manual_seed(seed)
    hidden_ND = torch.randn(num_positions, width, generator=generator)
    weight_VD = torch.randn(num_words, width, generator=generator)
    return hidden_ND, weight_VD, torch.randint(0, num_words, (num_positions,), generator=generator)


def exact_logits(hidden_ND: Tensor, head: Head) -> Tensor:
    """The whole of the logits [N, V] in fp64."""
    logits_NV = hidden_ND.double() @ head.weight_VD.double().T
    if head.bias_V is not None:
        logits_NV = logits_NV + head.bias_V.double()
    if head.multiplier is not None:
        logits_NV = logits_NV * head.multiplier
    if head.divisor is not None:
        logits_NV = logits_NV / head.divisor
    if head.softcap is not None:
        logits_NV = head.softcap * torch.tanh(logits_NV / head.softcap)
    return logits_NV


def exact(hidden_ND: Tensor, head: Head, targets_N: Tensor) -> Tensor:
    """The same losses all in fp64."""
    logits_NV = exact_logits(hidden_ND, head)
    return -torch.log_softmax(logits_NV, dim=1).gather(1, targets_N[:, None])[:, 0]


@settings(max_examples=40)
@given(
    num_positions=st.integers(1, 300),
    num_words=st.integers(2, 200),
    width=st.integers(1, 64),
    seed=st.integers(0, 2**31),
    has_bias=st.booleans(),
    multiplier=st.sampled_from([None, 0.0625, 3.0]),
    divisor=st.sampled_from([None, 4.0, 8.0]),
    softcap=st.sampled_from([None, 3.0, 30.0]),
)
def test_losses_are_those_of_an_fp64_log_softmax(
    num_positions: int,
    num_words: int,
    width: int,
    seed: int,
    has_bias: bool,
    multiplier: float | None,
    divisor: float | None,
    softcap: float | None,
) -> None:
    """For any head, the loss of each position equals that of fp64 to 1e-6 of the largest logit."""
    hidden_ND, weight_VD, targets_N = made(num_positions, num_words, width, seed)
    bias_V = weight_VD[:, 0] * 2 if has_bias else None
    head = Head(weight_VD, bias_V, multiplier, divisor, softcap)

    losses_N = token_losses(hidden_ND, head, targets_N)

    error = (losses_N - exact(hidden_ND, head, targets_N)).abs().max().item()
    assert losses_N.dtype == torch.float64
    assert error <= 1e-6 * max(1.0, exact_logits(hidden_ND, head).abs().max().item())


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0])
def test_a_uniform_head_costs_the_log_of_its_vocabulary(scale: float) -> None:
    """Equal logits of any size give ln V, to the last digits of fp32."""
    hidden_ND, targets_N = torch.full((5, 4), scale), torch.arange(5)

    losses_N = token_losses(hidden_ND, Head(torch.ones(32_000, 4)), targets_N)

    assert losses_N.tolist() == pytest.approx([10.373491181781864] * 5, rel=1e-7)


def test_softmax_then_log() -> None:
    """Logits [0, -110] cost 110 nats, where a softmax in fp32 would have rounded to a probability of 0."""
    head = Head(weight_VD=torch.tensor([[0.0], [-110.0]]))

    losses_N = token_losses(torch.ones(2, 1), head, torch.tensor([1, 0]))

    assert losses_N[0].item() == 110.0
    assert losses_N[1].item() == pytest.approx(0.0, abs=1e-30)


def test_huge_logits_do_not_overflow() -> None:
    """Logits whose exponentials are beyond FP64 still have exact differences."""
    head = Head(weight_VD=torch.tensor([[30_000.0], [29_990.0], [-30_000.0]]))

    losses_N = token_losses(torch.ones(3, 1), head, torch.tensor([0, 1, 2]))

    assert losses_N.tolist() == pytest.approx([4.5398899e-05, 10.0000454, 60000.0000454], rel=2e-3)


def test_bf16_log_softmax() -> None:
    """With bf16 hidden states and V = 50,000 the error against fp64 of the same inputs is below 1e-5 nats."""
    hidden_ND, weight_VD, targets_N = made(300, 50_000, 32, seed=3)
    hidden_ND, head = (hidden_ND / 8).bfloat16(), Head(weight_VD)

    losses_N = token_losses(hidden_ND, head, targets_N)

    assert (losses_N - exact(hidden_ND, head, targets_N)).abs().max().item() < 1e-5


def test_autocast_does_not_reach_the_head() -> None:
    """Inside bf16 autocast the head computes the same bits as outside."""
    hidden_ND, weight_VD, targets_N = made(130, 400, 24, seed=4)
    outside = token_losses(hidden_ND.bfloat16(), Head(weight_VD), targets_N)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = token_losses(hidden_ND.bfloat16(), Head(weight_VD), targets_N)

    assert torch.equal(inside, outside)


@pytest.mark.parametrize("num_positions", [1, 127, 128, 129, 255, 256, 257, 300])
def test_a_position_does_not_depend_on_the_others(num_positions: int) -> None:
    """Around every chunk border, a loss has the bits that it has alone, among strangers, and at another place."""
    hidden_ND, weight_VD, targets_N = made(num_positions, 1000, 48, seed=5)
    head = Head(weight_VD, bias_V=weight_VD[:, 1], softcap=20.0)
    probed = sorted({0, 1, 126, 127, 128, 129, 255, 256, num_positions - 1} & set(range(num_positions)))
    alone = [token_losses(hidden_ND[at : at + 1], head, targets_N[at : at + 1]).item() for at in probed]

    together = token_losses(hidden_ND, head, targets_N)
    reverse = token_losses(hidden_ND.flip(0), head, targets_N.flip(0)).flip(0)
    others_ND = torch.cat([hidden_ND[:1] * -7, hidden_ND])
    shifted = token_losses(others_ND, head, torch.cat([targets_N[:1], targets_N]))[1:]

    assert together[probed].tolist() == alone
    assert torch.equal(reverse, together)
    assert torch.equal(shifted, together)


@given(st.integers(1, 100_000))
def test_a_full_tile_fills_its_chunks(num_positions: int) -> None:
    """As few chunks as the limit allows, all of one size, with less than one spare position in each."""
    chunk = chunk_of(num_positions)

    num_chunks = -(-num_positions // chunk)
    assert 1 <= chunk <= HEAD_CHUNK
    assert num_chunks == -(-num_positions // HEAD_CHUNK)
    assert chunk * num_chunks - num_positions < num_chunks


@pytest.mark.parametrize("chunk", [17, 264, 400, 512])
def test_a_position_has_its_own_bits_in_every_chunk_size(chunk: int) -> None:
    """In chunks of one size a loss is the same at any place, alone or among others."""
    hidden_ND, weight_VD, targets_N = made(600, 5000, 48, seed=7)
    head = Head(weight_VD)

    together = token_losses(hidden_ND, head, targets_N, chunk=chunk)
    moved = token_losses(hidden_ND.roll(131, 0), head, targets_N.roll(131, 0), chunk=chunk).roll(-131, 0)
    alone = token_losses(hidden_ND[599:], head, targets_N[599:], chunk=chunk)

    assert torch.equal(moved, together)
    assert torch.equal(alone, together[599:])


def test_a_nan_stays_in_its_position() -> None:
    """A hidden state that is not finite spoils its own loss only."""
    hidden_ND, weight_VD, targets_N = made(HEAD_CHUNK, 100, 16, seed=6)
    sound = token_losses(hidden_ND, Head(weight_VD), targets_N)
    hidden_ND[7, 3] = torch.nan
    hidden_ND[9, 0] = torch.inf

    losses_N = token_losses(hidden_ND, Head(weight_VD), targets_N)

    assert not losses_N[7].isfinite()
    assert not losses_N[9].isfinite()
    others = [at for at in range(HEAD_CHUNK) if at not in (7, 9)]
    assert torch.equal(losses_N[others], sound[others])


def test_no_positions_have_no_losses() -> None:
    """An empty selection is an empty result."""
    assert token_losses(torch.empty(0, 8), Head(torch.ones(4, 8)), torch.empty(0, dtype=torch.int64)).shape == (0,)


@pytest.mark.slow
def test_tv_logits() -> None:
    """8,192 positions over 150,000 words need less than 2 GiB, where their fp32 logits alone would be 4.6 GiB."""
    done = subprocess.run([sys.executable, "-c", PEAK_PROGRAM], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 2 << 30


@pytest.mark.parametrize("hidden_dtype", [torch.bfloat16, torch.float32])
def test_a_bf16_head_is_as_exact_as_fp32(hidden_dtype: torch.dtype) -> None:
    """Its weights are bf16 numbers; hidden states that are none are multiplied as fp32 all the same."""
    hidden_ND, weight_VD, targets_N = made(40, 700, 96, seed=21)
    head = Head(weight_VD.bfloat16().float(), is_bf16=True)
    hidden_ND = (hidden_ND / 8).to(hidden_dtype)  # logits of a few units, as models have them

    losses_N = token_losses(hidden_ND, head, targets_N)

    expected_N = exact(hidden_ND.float(), head, targets_N)
    assert (losses_N - expected_N).abs().max().item() < 1e-5
