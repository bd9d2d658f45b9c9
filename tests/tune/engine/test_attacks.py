"""Whatever a candidate does to its process is its own fault: no other is refused, and the user's process runs on."""

from __future__ import annotations

import importlib.util
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.attacks.workers import attack
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
from constrint.tune.floor import implausible
from constrint.tune.messages import HEAD, BrokenChannel, Channel, ClosedChannel, describe, packed, plain, unpacked

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

GPU = load_gpu("h200")


class Ends:
    """A channel of this process with itself: `write` is what a candidate writes."""

    def __init__(self) -> None:
        (self.read, requests), (replies, self.to), (output, self.out) = os.pipe(), os.pipe(), os.pipe()
        self.channel = Channel(requests, replies, output, longest=1000)
        os.set_blocking(self.to, False)

    def write(self, data: bytes) -> None:
        os.write(self.to, data)


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_half_a_message_is_none_yet_and_nobody_waits_for_the_rest(ends: Ends) -> None:
    whole = packed([1, "two"])
    for byte in whole[:-1]:
        ends.write(bytes([byte]))
        assert ends.channel.receive() is None
    ends.write(whole[-1:] + whole)
    assert [ends.channel.receive() for _ in range(3)] == [whole[HEAD.size :], whole[HEAD.size :], None]


def test_a_reader_that_does_not_read_is_not_waited_for(ends: Ends) -> None:
    ends.channel.send(b"x" * (8 << 20))
    got = 0
    while got < 7 << 20:
        assert ends.channel.has_unsent
        got += len(os.read(ends.read, 1 << 20))
        ends.channel.flush()


@pytest.mark.parametrize("length", [993, 2**40, 2**64 - 1])
def test_a_length_beyond_the_limit_is_not_believed(ends: Ends, length: int) -> None:
    ends.write(HEAD.pack(length))
    with pytest.raises(BrokenChannel, match="bytes long"):
        ends.channel.receive()


def test_a_pipe_that_is_closed_is_told_after_all_that_was_sent(ends: Ends) -> None:
    ends.write(packed("last words"))
    os.close(ends.to)
    assert ends.channel.receive() == packed("last words")[HEAD.size :]
    with pytest.raises(ClosedChannel):
        ends.channel.receive()


class Ran:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return self.path.touch, ()


def test_bytes_that_are_no_answer_are_refused_and_never_run(tmp_path: Path) -> None:
    decoder = msgspec.msgpack.Decoder(tuple[int, str])
    good = msgspec.msgpack.encode((1, "xx"))
    bad = [b"", b"\xc0", good[:-1], good.replace(b"xx", b"\xff\xfe"), b"\x91" * 100_000, b"\x92\x01\xc0"]
    for body in [*bad, pickle.dumps(Ran(tmp_path / "ran"))]:
        with pytest.raises(BrokenChannel, match="its answer is none"):
            unpacked(body, decoder)
    assert not (tmp_path / "ran").exists()


class Textless(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


def test_any_exception_has_a_line_that_can_be_sent() -> None:
    looped = RuntimeError("one")
    looped.__cause__ = ValueError("other")
    looped.__cause__.__cause__ = looped
    for error, line in (
        (RuntimeError("a \ud800 b"), r"RuntimeError: a \ud800 b"),
        (Textless(), "Textless: a text that raises TypeError"),
        (looped, "ValueError: other"),
        (RuntimeError("x" * 10_000_000), f"RuntimeError: {'x' * 586}"),
        (RuntimeError("at 3:4:\n  y = x\n      ^\nno such name"), "RuntimeError: no such name"),
        (RuntimeError("out of memory\nCompile with more"), "RuntimeError: out of memory"),
        (RuntimeError(), "RuntimeError: "),
    ):
        assert describe(error) == line
        packed(describe(error))
    assert plain("\udc80") == r"\udc80"


def test_attackers_drawn_by_seed_harm_nobody() -> None:
    finds, outcomes = attack(24, 300, patience_s=8.0)
    assert finds == []
    assert sum(outcomes.values()) == 24
    assert {"CRASHED", "LAUNCH_FAILED"} <= set(outcomes)


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 1e-9, float("nan"), float("inf")])
def test_a_time_below_what_the_gpu_needs_is_told_to_be_none(seconds: float) -> None:
    (pointer, *_) = load_kernel("gemm").implementations
    large = Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, "bf16")
    assert "less than the 138.91 us that H200-SXM needs" in implausible(pointer, GPU, large, seconds)
    assert implausible(pointer, GPU, large, 2e-4) == ""
    assert "138.91 us" in implausible(pointer, GPU, large, 1.3e-4)


def test_a_stated_least_time_needs_stated_bytes() -> None:
    """What a kernel leaves to the default of its base is no fact about it."""
    from tests.tune.tiny import TinySpec

    tiny = TinySpec()
    assert implausible(tiny, GPU, Workload("tiny", {"m": 1 << 20, "n": 1 << 20, "k": 1 << 20}, "fp32"), 1e-9) == ""
