"""Observation of a candidate's call beside its outputs: foreign kernels, library operations, and changed state.

All observation is from inside the candidate's process. It refuses source that the gate `legal` let through; source that
has taken over its process could hide from it, which is why it is read first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from constrint.propose.worker.held import blocks, bound, released

_HARMLESS = (
    "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros zero_ view _unsafe_view "
    "reshape _reshape_alias as_strided transpose permute t expand unsqueeze squeeze slice select alias detach clone "
    "contiguous is_contiguous stride size sym_size sym_stride sym_numel lift_fresh"
)
#: Operations of PyTorch that compute nothing: they take memory, view it in another way, copy it as it is, or zero it.
HARMLESS = frozenset(f"aten.{name}" for name in _HARMLESS.split())
#: Methods by which values of a tensor leave it without an operation of PyTorch.
EXITS = frozenset({"numpy", "tolist", "item", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage"})
#: Attributes through which a timer, a check or a launch could be replaced.
GUARDED = (
    "builtins", "time", "statistics", "math", "gc", "torch", "torch.Tensor", "torch.cuda", "torch.cuda.Event",
    "torch.cuda.Stream", "torch.cuda.streams", "torch.nn.functional", "torch.testing", "triton", "triton.testing",
    "triton.language", "triton.runtime.jit", "triton.runtime.jit.JITFunction", "triton.runtime.interpreter",
    "triton.compiler.compiler.CompiledKernel", "constrint.propose.machine.judge", "constrint.tune.messages",
    "constrint.propose.wire", "constrint.propose.worker.held", "constrint.propose.worker.held.HeldTensor",
    "constrint.propose.worker.main", "constrint.propose.worker.serve",
    "constrint.propose.worker.serve.Server", "constrint.propose.worker.tensors",
    "constrint.propose.worker.tensors.TensorMemory", "constrint.propose.worker.watch",
    "constrint.propose.worker.watch.Guard", "constrint.propose.worker.watch.Launches",
)  # fmt: skip
#: Most names of a kind that are told.
MAX_NAMES = 6


class Launches:
    """Counts kernels that are launched, and tells a candidate's own from others.

    Args:
        is_own: Whether a jitted function is of the candidate's source.
    """

    def __init__(self, is_own: Callable[[Any], bool]) -> None:
        self._is_own = is_own
        self.count = 0
        self.foreign: list[str] = []
        self.is_watched = False
        self.streams: set[int] = set()

    def install(self, kind: Any) -> None:
        """Put this between every launch of a kind of function and what launches it."""
        launch = kind.run

        def run(function: Any, *arguments: Any, **options: Any) -> Any:
            if not self._is_own(function):
                with self.launching(str(getattr(function, "__name__", "?"))):
                    return launch(function, *arguments, **options)
            grid, is_warmup = options.pop("grid"), options.pop("warmup", False)
            grid = blocks(grid, lambda: bound(function, arguments, options)[0])
            named = {name: released(value) for name, value in options.items()}
            with self.launching():
                launch(function, *map(released, arguments), grid=grid, warmup=is_warmup, **named)
            # The compiled kernel that a launch gives is not for launch code.
            return None

        kind.run = run

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        """Count anew, and watch streams and operations of PyTorch meanwhile; the names of those that compute."""
        self.count, self.foreign, self.streams, self.is_watched = 0, [], set(), True
        try:
            with library_calls() as library:
                yield library
        finally:
            self.is_watched = False

    @contextmanager
    def launching(self, foreign: str | None = None) -> Iterator[None]:
        """Count a launch; what is done with PyTorch meanwhile is not the candidate's.

        Args:
            foreign: The name of a kernel that is not the candidate's own.
        """
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        if foreign is None:
            self.count += 1
        else:
            self.foreign.append(foreign)
        if self.is_watched:
            self.streams.add(_stream())
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            yield


@contextmanager
def library_calls() -> Iterator[list[str]]:
    """The operations of PyTorch that are called meanwhile, outside of launches, and that compute something, by name."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []

    class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Else PyTorch loads its tracer, which takes half of a worker's start, to say that nothing is traced here.
            return False

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(function.overloadpacket)
            if name not in HARMLESS:
                names.append(name)
            return function(*args, **(kwargs or {}))

    class Methods(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if name in EXITS:
                names.append(f"Tensor.{name}")
            return function(*args, **(kwargs or {}))

    modes: tuple[Any, Any] = (Operations(), Methods())  # type: ignore[no-untyped-call]
    with modes[0], modes[1]:
        yield names


class Guard:
    """State of the process before the candidate was loaded, to detect changes."""

    def __init__(self) -> None:
        places = {name: _place(name) for name in GUARDED}
        self._functions = {
            name: {key: value for key, value in vars(place).items() if callable(value)}
            for name, place in places.items()
            if place is not None
        }
        self._settings = _settings()

    def patched(self) -> tuple[str, ...]:
        """Functions that were replaced or taken away."""
        changed = []
        for name, functions in self._functions.items():
            now = vars(_place(name))
            changed += [f"{name}.{key}" for key, value in functions.items() if now.get(key, _GONE) is not value]
        return tuple(sorted(set(changed)))[:MAX_NAMES]

    def settings(self) -> tuple[str, ...]:
        """Settings that were changed."""
        now = _settings()
        return tuple(name for name, value in self._settings.items() if now[name] != value)

    def other_streams(self, streams: set[int]) -> tuple[str, ...]:
        """Message about kernels on streams that were not current before; empty for none."""
        return ("the stream of a launch",) if streams - {self._settings["the current stream"]} else ()


_GONE = object()


def _place(name: str) -> Any:
    """A module or a class by its full name; None where there is none."""
    try:
        return import_module(name)
    except ImportError:
        parent, _, last = name.rpartition(".")
        return getattr(_place(parent), last, None) if parent else None


def _settings() -> dict[str, Any]:
    import torch

    settings: dict[str, Any] = {
        "the default dtype": torch.get_default_dtype(),
        "the precision of float32 products": torch.get_float32_matmul_precision(),
        "tf32 in products": torch.backends.cuda.matmul.allow_tf32,
        "gradients": torch.is_grad_enabled(),
        "threads of Python": threading.active_count(),
    }
    settings["the current stream"] = _stream()
    return settings


def _stream() -> int:
    """The stream on which kernels are launched now; 0 on the CPU."""
    import torch

    cuda: Any = torch.cuda
    return int(cuda.current_stream().cuda_stream) if cuda.is_initialized() else 0
