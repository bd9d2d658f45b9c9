"""Messages between the user's process and the worker of a candidate.

A reply is decoded into one of the records below or refused; `constrint/tune/messages.py` carries them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from constrint.tune.messages import unpacked
from constrint.tune.search.llm.records import KernelLaunch

#: Most bytes of a reply.
MAX_REPLY_BYTES = 1 << 31


class WireMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all messages."""


class TensorLayout(WireMessage, frozen=True):
    """A tensor without its values.

    Args:
        name: The argument's name.
        dtype: `fp32`, `bf16`, `fp16` or `i64`.
        shape: Its shape.
        strides: Its strides in elements; empty for a contiguous one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()


class Array(WireMessage, frozen=True):
    """A tensor: its layout, and its values in the order of a contiguous one."""

    layout: TensorLayout
    data: bytes


class Drawn(WireMessage, frozen=True):
    """Inputs that the worker draws itself, so that large ones need no pipe.

    Args:
        task: The task's name, or the file that it is in.
        sizes: The sizes.
        dtype: The type of the operands.
        seed: The seed; chosen by the user's process when the inputs are needed.
    """

    task: str
    sizes: dict[str, int]
    dtype: str
    seed: int


# What a worker is asked.


class Load(WireMessage, frozen=True, tag="load"):
    """Execute a candidate's source."""

    source: str
    entry: str


class LoadCuda(WireMessage, frozen=True, tag="load_cuda"):
    """Take a candidate in CUDA C++; nothing of it executes.

    Args:
        source: The text.
        launches: The launches of a call.
        scratch: Bytes of memory that a call works in, by name.
        arguments: Names of the tensors of a call: outputs, then inputs.
        gpu: The GPU that it runs on.
    """

    source: str
    launches: tuple[KernelLaunch, ...]
    scratch: dict[str, str]
    arguments: tuple[str, ...]
    gpu: str


class LoadPlain(WireMessage, frozen=True, tag="load_plain"):
    """Take the plain PyTorch function of a task in place of a candidate; only for a worker that runs nothing else."""

    task: str


class Compile(WireMessage, frozen=True, tag="compile"):
    """Compile for a named GPU what a candidate launches for arguments of these layouts; nothing runs."""

    gpu: str
    outputs: tuple[TensorLayout, ...]
    inputs: tuple[TensorLayout, ...]


class CallOnce(WireMessage, frozen=True, tag="call"):
    """Call a candidate once.

    Args:
        outputs: Tensors to write, poisoned before.
        inputs: Tensors to read.
        in_same_memory: Whether to take the memory of the call before, which had the same layouts, and only renew its
            contents.
    """

    outputs: tuple[TensorLayout, ...]
    inputs: tuple[Array, ...]
    in_same_memory: bool = False


class Prepare(WireMessage, frozen=True, tag="prepare"):
    """Draw inputs anew for calls that are timed, poison their outputs, and wait for the device."""

    sets: tuple[Drawn, ...]


class RunWorker(WireMessage, frozen=True, tag="run"):
    """Call the candidate on the first `count` prepared sets, and wait for the device."""

    count: int


class TimeSample(WireMessage, frozen=True, tag="sample"):
    """Send some elements of the outputs of a prepared set, by their positions in the flattened outputs."""

    index: int
    positions: dict[str, tuple[int, ...]]


Request: TypeAlias = Load | LoadCuda | LoadPlain | Compile | CallOnce | Prepare | RunWorker | TimeSample

# What a worker answers.


class Acknowledged(WireMessage, frozen=True, tag="done"):
    """It is done; there is nothing to say."""


class Failed(WireMessage, frozen=True, tag="failed"):
    """It raised an exception: its type and its text."""

    error: str


class Kernel(WireMessage, frozen=True):
    """The compiled kernel of one launch of a candidate."""

    name: str
    threads_per_block: int
    smem_bytes: int
    registers: int
    accumulator_registers: int
    spill_bytes: int
    num_blocks: int


class CompiledKernels(WireMessage, frozen=True, tag="compiled"):
    """The kernels that were compiled, in the order of their launches; empty where the candidate launches none."""

    kernels: tuple[Kernel, ...]


class Watched(WireMessage, frozen=True):
    """Observations of one call beside its outputs.

    Args:
        launches: Kernels of the candidate's own that it launched.
        foreign: Names of kernels that it launched and that its source does not define.
        library: Operations of PyTorch that it called and that compute something.
        changed_inputs: Names of inputs that hold other bytes than before, or were given another shape or memory.
        overrun: Names of outputs beside which memory was written.
        patched: Functions of the harness, PyTorch, Triton or Python that are not what they were.
        settings: Settings of the process that are not what they were: default dtype, precision, stream, threads.
        returned: The type of what the call returned; empty for None.
    """

    launches: int = 0
    foreign: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    changed_inputs: tuple[str, ...] = ()
    overrun: tuple[str, ...] = ()
    patched: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    returned: str = ""


class Called(WireMessage, frozen=True, tag="called"):
    """The outputs of a call, and its observations."""

    outputs: tuple[Array, ...]
    watched: Watched


class Sampled(WireMessage, frozen=True, tag="sampled"):
    """Elements of outputs, and what has changed in the process since the candidate was loaded."""

    values: dict[str, bytes]
    watched: Watched


Reply: TypeAlias = Acknowledged | Failed | CompiledKernels | Called | Sampled

_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def decode_request(body: bytes) -> Request:
    """The request that a body is."""
    return _REQUESTS.decode(body)


def decode_reply(body: bytes) -> Reply:
    """The reply that a body is.

    Raises:
        BrokenChannel: When it is none.
    """
    return unpacked(body, _REPLIES)
