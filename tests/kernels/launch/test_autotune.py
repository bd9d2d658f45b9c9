"""`constrint.autotune`: what is refused when a kernel is decorated, what is chosen, and what trying in place gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages, needs_gpu

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

import constrint
from constrint.errors import InfeasibleError, ParseError, UnknownNameError, UsageError
from tests.support import autotuned
from tests.support.autotuned import SPACE, accumulate_kernel, add_kernel, blocks, double_kernel

#: What runs in Triton's interpreter, in one process.
CASES: dict[str, dict[str, Any]] = {
    "never": {"what": "added", "n": 1000, "tune": "never"},
    "first_call": {"what": "added", "n": 1000, "tune": "first_call"},
    "wrong": {"what": "refused", "has_reference": True},
    "accumulates": {"what": "accumulated"},
    "kept": {"what": "kept"},
    "whole_spec": {"what": "whole_spec"},
    "strided": {"what": "strided"},
    "doubled": {"what": "doubled"},
}


@pytest.fixture(scope="module")
def ran() -> dict[str, Any]:
    return interpreted("tests.support.autotuned:run", CASES)


def decorated(**stated: Any) -> Any:
    """The sum behind a space; what is stated replaces the usual."""
    params = stated.pop("params", {"tile": [64, 128], "num_warps": [1, 2]})
    space = {name: stated.pop(name) for name in ("rules", "registers", "outputs", "moved_bytes") if name in stated}
    return constrint.autotune(constrint.space(params, **space), **{"key": ["n"], **stated})(add_kernel)


@pytest.mark.parametrize(
    ("stated", "error", "told"),
    [
        ({"key": ["size"]}, UnknownNameError, "unknown argument 'size'.*key of add_kernel"),
        ({"key": "n"}, UsageError, "key takes a list of names, got the text 'n'"),
        ({"reset_to_zero": ["output"]}, UnknownNameError, "unknown argument 'output'.*Nearest: out"),
        ({"params": {"n": [1, 2]}}, UsageError, "'n' is an argument without a `tl.constexpr` annotation"),
        ({"params": {"tiles": [64]}}, UnknownNameError, "unknown parameter 'tiles'.*Nearest: tile"),
        ({"params": {}}, UsageError, "params must map the name of each parameter"),
        ({"params": {"tile": []}}, UsageError, "list of values for space: 'tile' is empty"),
        ({"rules": ["tile <= m"]}, UnknownNameError, "unknown name 'm'.*rules\\[0\\]"),
        ({"rules": ["tile <="]}, ParseError, "not a Python expression"),
        ({"rules": ["__import__('os').system('ls')"]}, ParseError, "this call is not supported"),
        ({"rules": ["tile.__class__ == 3"]}, ParseError, "attributes are not supported"),
        ({"rules": ["(" * 100_000 + "tile" + ")" * 100_000]}, ParseError, "too many nested parentheses"),
        ({"rules": ["1 + " * 100_000 + "tile"]}, ParseError, "rules"),
        ({"registers": "tile / 3"}, ParseError, "write // for a division that rounds down"),
        ({"rules": [3.5]}, UsageError, "rules\\[0\\] must be the text of an expression"),
        ({"registers": "tile * x"}, UnknownNameError, "unknown name 'x'.*registers"),
        ({"moved_bytes": "tile * n"}, UnknownNameError, "unknown name 'tile'.*moved_bytes"),
        ({"outputs": ["result"]}, UnknownNameError, "unknown argument 'result'"),
        ({"tune": "always"}, UsageError, "tune must be 'never' or 'first_call', got 'always'"),
        ({"trials": 0}, UsageError, "trials must be a whole number from 1"),
        ({"gpu": "h201"}, UnknownNameError, "H200-SXM"),
    ],
)
def test_what_is_wrong_is_told_when_the_kernel_is_decorated(stated: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=f"(?s){told}"):
        decorated(**stated)


def test_only_jitted_functions_and_specs_are_taken() -> None:
    with pytest.raises(UsageError, match=r"decorates a function of triton\.jit, got function"):
        constrint.autotune(SPACE)(lambda x: x)
    with pytest.raises(UsageError, match=r"takes constrint.space\(...\) or a TritonKernelSpec, got dict"):
        constrint.autotune({"tile": [64]})  # type: ignore[arg-type]


def meta(n: int, dtype: torch.dtype = torch.float32) -> Any:
    return torch.empty(n, device="meta", dtype=dtype)


def test_the_model_ranks_what_fits_each_gpu_and_compiles_it() -> None:
    kernel = constrint.autotune(SPACE, key=["n"])(add_kernel)
    given: Any = {"grid": blocks}
    for gpu, warp_size, target in (("h200", 32, "sm_90"), ("mi300x", 64, "gfx942")):
        ranking = kernel.ranking(meta(1000), meta(1000), meta(1000), 1000, gpu=gpu, **given)
        assert ranking.num_product == 6
        assert all(c.config["num_warps"] * warp_size <= c.config["tile"] for c in ranking.candidates)
        config, compiled = kernel.compile(meta(1000), meta(1000), meta(1000), 1000, gpu=gpu, **given)
        assert config == ranking.candidates[0].config
        assert compiled.target == target
        assert compiled.spill_bytes == 0
    # `tile <= 4 * n`: the key's numbers are known to the rules.
    small = kernel.ranking(meta(20), meta(20), meta(20), 20, gpu="h200", grid=blocks)
    assert {candidate.config["tile"] for candidate in small.candidates} == {64}


def test_many_small_blocks_are_predicted_to_take_longer() -> None:
    space = constrint.space({"tile": [16, 1024], "num_warps": [1]})
    n = 50_000_000
    ranking = constrint.autotune(space, key=["n"])(add_kernel).ranking(
        meta(n), meta(n), meta(n), n, grid=blocks, gpu="h200"
    )
    assert [candidate.config["tile"] for candidate in ranking.candidates] == [1024, 16]
    assert ranking.candidates[0].cost.seconds >= ranking.roofline_s


def test_a_call_that_cannot_be_made_is_told() -> None:
    kernel = constrint.autotune(SPACE, key=["n"], gpu="h200")(add_kernel)
    x = torch.zeros(64)
    with pytest.raises(UsageError, match=r"tile is chosen by constrint\.autotune; leave it out"):
        kernel[(1,)](x, x, x, 64, tile=64)
    with pytest.raises(UsageError, match="the call lacks n, which is no parameter"):
        kernel[(1,)](x, x, x)
    lacking = constrint.autotune(constrint.space({"tile": [64]}), gpu="h200")(accumulate_kernel)
    with pytest.raises(UsageError, match=r"the call lacks kind \(a tl\.constexpr\)"):
        lacking[(1,)](x, x, 64)
    of_tensor = constrint.autotune(SPACE, key=["n", "x"], gpu="h200")(add_kernel)
    with pytest.raises(UsageError, match="the key names the tensor 'x'"):
        of_tensor[(1,)](x, x, x, 64)


def test_names_of_triton_users_are_there() -> None:
    kernel = constrint.autotune(SPACE, key=["n"])(add_kernel)
    assert kernel.fn is add_kernel
    assert kernel.arg_names == ["x", "y", "out", "n", "tile"]
    assert kernel.keys == ("n",)
    assert kernel.cache == {}
    assert kernel.best_config is None
    assert kernel.base_fn.__name__ == kernel.__name__ == "add_kernel"


def test_calls_in_the_interpreter_are_right_and_chosen_once(ran: Any) -> None:
    for name in ("never", "first_call"):
        seen = ran[name]
        assert seen["is_right"], name
        assert seen["keys"] == 1
        assert seen["tile"] in (64, 128, 256)
        if name == "never":
            assert seen["outcomes"] == []
        else:
            assert set(seen["outcomes"]) == {"ok"}
            assert seen["finals"] == 3
            assert seen["recorded"] == {"tile": seen["tile"], "num_warps": seen["num_warps"]}


def test_a_wrong_candidate_is_recorded_and_not_taken(ran: Any) -> None:
    seen = ran["wrong"]
    assert seen["outcomes"] == {"64": "wrong_result", "128": "ok", "256": "wrong_result"}
    assert seen["is_right"]
    assert seen["tile"] == 128


def test_a_kernel_that_accumulates_is_run_once_on_the_users_tensors(ran: Any) -> None:
    seen = ran["accumulates"]
    assert seen["error"] < 1e-2
    assert seen["kind"] == "square"
    assert set(seen["outcomes"]) == {"ok"}


def test_tensors_of_any_strides_are_tried(ran: Any) -> None:
    assert ran["strided"] == {"is_right": True, "outcomes": ["ok"] * 4}


def test_heuristics_between_the_decorators_are_asked(ran: Any) -> None:
    assert ran["doubled"] == {"right": [True, True], "keys": 2}
    kernel = constrint.autotune(constrint.space({"tile": [64], "num_warps": [1]}), key=["n"])(double_kernel)
    _, whole = kernel.compile(meta(128), meta(128), 128, grid=blocks, gpu="h200")
    assert whole.target == "sm_90"


def test_what_was_measured_is_kept(ran: Any) -> None:
    seen = ran["kept"]
    assert seen["first"]["outcomes"]
    assert seen["second"]["outcomes"] == []
    for later in ("second", "third"):
        assert seen[later]["tile"] == seen["first"]["tile"]
        assert seen[later]["num_warps"] == seen["first"]["num_warps"]
    assert seen["other"]["outcomes"]


def test_a_whole_spec_is_checked_against_its_own_reference_and_recorded(ran: Any) -> None:
    seen = ran["whole_spec"]
    assert seen["outcomes"] == ["ok"] * 4  # two trials, and both again as finalists
    assert max(seen["errors"]) > 0  # of a reference in fp64, not of the first candidate
    assert seen["recorded"] == 4


class Refusing:
    """Stands for a jitted function on a GPU: its compiler refuses some tiles, and others spill."""

    def __init__(self, refused: tuple[int, ...], spills: dict[int, int]) -> None:
        self.fn = add_kernel.fn
        self.refused, self.spills = refused, spills
        self.launched: list[tuple[int, int]] = []
        self.compiled: list[int] = []

    def run(self, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        from triton.runtime.errors import OutOfResources

        tile = options["tile"]
        if not warmup:
            self.launched.append((tile, options["num_warps"]))
            return None
        self.compiled.append(tile)
        if tile in self.refused:
            raise OutOfResources(300_000, 232_448, "shared memory")
        facts = {"shared": 0, "target": SimpleNamespace(backend="cuda", arch=90)}
        kernel = SimpleNamespace(n_spills=self.spills.get(tile, 0), n_regs=255, metadata=SimpleNamespace(**facts))
        kernel._init_handles = lambda: None
        return kernel


class OnGpu:
    """Stands for a tensor on a GPU."""

    dtype, device, shape = torch.float32, torch.device("cuda", 0), (4096,)

    def data_ptr(self) -> int:
        return 256

    def numel(self) -> int:
        return 4096

    def element_size(self) -> int:
        return 4


def launched_by(function: Refusing) -> Any:
    space = constrint.space({"tile": [64, 128, 256, 512, 1024, 2048, 4096], "num_warps": [1]})
    kernel = constrint.autotune(space, key=["n"], gpu="h200")(function)
    for _ in range(2):
        kernel[blocks](OnGpu(), OnGpu(), OnGpu(), 4096)
    return kernel


def test_what_the_device_refuses_gives_way_to_the_models_next_choice() -> None:
    clean = Refusing((), {})
    launched_by(clean)
    first, second = clean.compiled[0], 4096
    assert clean.launched == [(first, 1)] * 2
    function = Refusing((first,), {})
    with pytest.warns(RuntimeWarning, match=f"add_kernel: {{'tile': {first}, .*is refused.*OutOfResources"):
        launched_by(function)
    second = function.compiled[1]
    assert second != first
    assert function.launched == [(second, 1)] * 2


def test_what_spills_is_launched_only_where_all_do() -> None:
    clean = Refusing((), {})
    launched_by(clean)
    first = clean.compiled[0]
    function = Refusing((), {first: 8})
    launched_by(function)
    assert first not in {tile for tile, _ in function.launched}
    every = Refusing((), {tile: tile for tile in (64, 128, 256, 512, 1024, 2048, 4096)})
    launched_by(every)
    assert every.launched == [(min(every.compiled), 1)] * 2


def test_where_all_are_refused_the_way_out_is_told() -> None:
    tiles = (64, 128, 256, 512, 1024, 2048, 4096)
    with (
        pytest.warns(RuntimeWarning, match="is refused"),
        pytest.raises(InfeasibleError, match=r"all 7 configurations .*OutOfResources.* State `registers`"),
    ):
        launched_by(Refusing(tiles, {}))


@pytest.mark.gpu
@needs_gpu
def test_a_whole_specs_winner_is_found_by_a_later_process() -> None:
    seen = autotuned.whole_spec({"device": "cuda"})
    assert set(seen["outcomes"]) == {"ok"}
    assert seen["recorded"] == 4
    assert seen["is_found_again"]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("tune", ["never", "first_call"])
def test_calls_on_the_gpu(tune: str) -> None:
    seen = autotuned.added({"n": 1 << 20, "tune": tune, "device": "cuda"})
    assert seen["is_right"]
    assert set(seen["outcomes"]) == ({"ok"} if tune == "first_call" else set())


@pytest.mark.gpu
@needs_gpu
def test_checks_on_the_gpu() -> None:
    seen = autotuned.refused({"has_reference": True, "device": "cuda"})
    assert seen["outcomes"] == {"64": "wrong_result", "128": "ok", "256": "wrong_result"}
    assert autotuned.accumulated({"device": "cuda"})["error"] < 1e-1
    assert autotuned.doubled({"device": "cuda"})["right"] == [True, True]
    assert autotuned.strided({"device": "cuda"}) == {"is_right": True, "outcomes": ["ok"] * 4}


@pytest.mark.gpu
@needs_gpu
def test_a_choice_that_spills_gives_way_to_the_next() -> None:
    # A thread holds 64 numbers at once, whatever the model says of registers.
    space = constrint.space({"tile": [1024], "num_warps": [1], "maxnreg": [24, 255]})
    kernel = constrint.autotune(space, key=["n"])(add_kernel)
    n = 1 << 20
    x, y, out = (torch.randn(n, device="cuda") for _ in range(3))
    kernel[blocks](x, y, out, n)
    assert torch.equal(out, x + y)
    assert kernel.best_config.maxnreg == 255
