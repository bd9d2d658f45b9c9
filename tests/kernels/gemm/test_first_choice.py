"""The first choice from the tables: valid, near the best of all spaces, fast, safe for every end of a product."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from constrint.choose import REGISTERS, Decision, Program, Step, forget
from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.candidates import best_configs, decide_product, request_of
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec, gemm_spec
from constrint.kernels.gemm.tables import TIE
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.select import Workload, rank
from constrint.select.limits import BlockColumns, most_registers
from constrint.select.rank import predict
from tests.support.clock import calls_of
from tests.support.decisions import begin_anew, refuse_step, without_winners
from tests.support.gemm import (
    DESCRIPTOR,
    KERNELS,
    POINTER,
    SKINNY,
    broken_rules,
    gemm,
    product,
    smem_of,
    use_of,
)

GPUS = ["H200-SXM", "B200", "MI300X", "A100-SXM4-80GB"]
H200 = load_gpu("h200")
#: The kernels among which the model chooses.
CALIBRATED = tuple(spec for spec in (*KERNELS, SKINNY) if not spec.uncalibrated())


def choose(gpu_name: str, asked: Product) -> Decision:
    """The choice among our kernels."""
    return decide_product(load_gpu(gpu_name), ours(asked))


def ours(asked: Product) -> Product:
    """The same product, for our kernels alone."""
    return replace(asked, no_library="our kernels are tested")


def triton(asked: Product) -> Product:
    """The same where CUDA C++ cannot be compiled."""
    return replace(asked, has_nvrtc=False)


def share_of_best(gpu_name: str, workload: Workload) -> float:
    """Predicted time of the best of all spaces over that of the choice, which has to satisfy every rule."""
    gpu = load_gpu(gpu_name)
    choice = choose(gpu_name, Product.of(workload))
    spec = gemm_spec(choice.kernel)
    problem = spec.problem(gpu, workload)
    assert set(choice.config) == set(problem.variables)
    assert not broken_rules(problem, choice.config)
    columns = {name: np.array([value]) for name, value in choice.config.items()}
    seconds = predict(spec, gpu, workload, columns).seconds[0]
    assert choice.seconds <= 1.002 * seconds * spec.optimism
    return best_of_all_s(gpu, workload) / float(seconds * spec.optimism)


def best_of_all_s(gpu: GpuModel, workload: Workload) -> float:
    """What the best of all spaces is expected to take."""
    expected = []
    for spec in CALIBRATED:
        if spec.serves(Product.of(workload)):
            with suppress(InfeasibleError, UnsupportedError):
                expected.append(rank(spec, gpu, workload, top=1).candidates[0].cost.seconds * spec.optimism)
    return min(expected)


@pytest.fixture
def models_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Choices by the models, with one factor for each kernel, whatever was measured and however long the host takes."""
    monkeypatch.setattr(candidates, "corrector_of", lambda *_: None)
    monkeypatch.setattr(candidates, "COPIED_HOST_S", 0.0)
    forget()
    yield
    forget()


@pytest.mark.parametrize("gpu_name", GPUS)
@pytest.mark.usefixtures("whole_tables", "models_alone")
def test_choice_is_valid_and_near_the_best_of_the_whole_space(gpu_name: str) -> None:
    """Shapes as odd as they come: log-uniform sizes from 1 to 20,000."""
    rng = random.Random(7)
    shares = []
    for _ in range(5):
        m, n, k = (int(20000 ** rng.random()) for _ in range(3))
        shares.append(share_of_best(gpu_name, gemm(m, n, k)))
    assert float(np.exp(np.mean(np.log(shares)))) >= 0.98
    assert min(shares) >= 0.85


@pytest.mark.usefixtures("whole_tables", "models_alone")
def test_choice_is_the_best_of_the_whole_space_for_everyday_shapes() -> None:
    shapes = [(m, n, k) for m in (1, 16, 100, 512, 2048, 16384) for n, k in ((1024, 1024), (4096, 11008), (3072, 768))]
    shapes += [(m, 777, 1555) for m in (1, 16, 100, 512, 2048, 16384)]
    shares = [share_of_best("H200-SXM", gemm(m, n, k)) for m, n, k in shapes]
    assert float(np.exp(np.mean(np.log(shares)))) >= 0.995
    assert min(shares) >= 0.97


def test_a_new_shape_takes_a_thousand_calls_and_a_repeated_one_next_to_none() -> None:
    gpu = load_gpu("H200-SXM")
    decide_product(gpu, ours(product(4096, 4096, 4096)))
    fresh, again = [], []
    for m in range(1000, 1010):
        asked = partial(decide_product, gpu, ours(product(16 * m, 4096, 4096)))
        fresh.append(calls_of(asked))
        again.append(calls_of(asked))
    # A call takes about a microsecond, those that price a few hundred rows included.
    assert max(fresh) < 1500
    assert max(again) < 120


SHAPES = [(4096, 4096, 4096), (1, 4096, 4096), (333, 777, 1555), (2048, 16, 64), (64, 8192, 8191)]


@pytest.mark.parametrize(
    ("gpu_name", "options"),
    [
        *((name, {}) for name in (*GPUS, "MI355X")),
        *((name, {"batch": 3, "transpose_b": 1}) for name in ("H200-SXM", "MI300X")),
        *((name, {"bias": 1, "transpose_a": 1}) for name in ("B200", "A100-SXM4-80GB", "MI355X")),
    ],
)
def test_a_table_prices_its_rows_as_the_cost_models_do(gpu_name: str, options: dict[str, int]) -> None:
    """What a table keeps of its rows for many products changes no predicted time, but for the rounding of chances.

    Rows of an odd C and ends of a product are judged by the chance of a plain product, or by that of a broken rule.
    """
    gpu = load_gpu(gpu_name)
    for sizes in SHAPES:
        asked = product(*sizes, **options)
        for table in candidates._tables(gpu, asked):
            rows, seconds = table.price(asked)
            columns = {name: column[rows] for name, column in table.columns.items()}
            priced = table.spec.price(gpu, asked, columns, table.blocks_per_sm[rows])
            assert np.all(seconds >= priced.seconds)
            assert all(np.all(np.asarray(part) >= 0) for part in priced.parts_s.values())
            if not options and sizes[1] % 8 == 0:
                blocks = blocks_of(gpu, table.spec, asked, columns)
                np.testing.assert_allclose(seconds, np.asarray(priced.seconds * blocks.slowdown(gpu)), rtol=1e-5)
                for place in range(0, len(rows), 37):
                    assert table.chance(asked, int(rows[place])) == pytest.approx(blocks.chances[place], abs=1e-6)


def blocks_of(gpu: GpuModel, spec: GemmSpec, asked: Product, columns: Mapping[str, NDArray[Any]]) -> BlockColumns:
    """What blocks take, and how likely they spill, as the whole space has it."""
    problem = spec.problem(gpu, asked.workload)
    use = use_of(spec, gpu, asked.workload, problem)
    return BlockColumns.of(gpu, use, columns, problem.estimates)


@pytest.mark.parametrize("gpu_name", ["A100-SXM4-80GB", "MI300X", "MI355X"])
def test_the_order_of_tiles_is_the_one_that_the_cost_model_prefers(gpu_name: str) -> None:
    gpu = load_gpu(gpu_name)
    for sizes in SHAPES:
        asked = product(*sizes)
        config = dict(choose(gpu_name, asked).config)
        problem = POINTER.problem(gpu, asked.workload)
        times = []
        for group in problem.variables["group_m"]:
            for chunk in problem.variables.get("xcd_chunk", (0,)):
                other = config | {"group_m": group} | ({"xcd_chunk": chunk} if "xcd_chunk" in config else {})
                if not broken_rules(problem, other):
                    columns = {name: np.array([value]) for name, value in other.items()}
                    times.append((predict(POINTER, gpu, asked.workload, columns).seconds[0], other))
        least = min(seconds for seconds, _ in times)
        assert next(seconds for seconds, other in times if other == config) <= (1 + TIE) * least


ENDS = [{"bias": 1}, {"wide_output": 1}, {"source": 1}, {"three_pass": 1}]


@pytest.mark.parametrize("dtype", POINTER.dtypes)
@pytest.mark.parametrize("end", ENDS, ids=lambda end: next(iter(end)))
def test_ends_leave_room(dtype: str, end: dict[str, int]) -> None:
    """The choice is valid for the kernel's whole space, and has room for what the end takes beside a plain product."""
    for sizes in ((4096, 4096, 4096), (64, 8192, 8192)):
        asked = product(*sizes, dtype, **end)
        choice = choose("h200", triton(asked))
        spec, config = gemm_spec(choice.kernel), choice.config
        workload = asked.workload
        problem = spec.problem(H200, workload)
        assert not broken_rules(problem, config)
        assert smem_of(use_of(spec, H200, workload, problem), config) <= H200.sm.max_smem_bytes_per_block


def expanded(asked: Product) -> Product:
    """The same with an A that is repeated in memory."""
    return replace(asked, a=replace(asked.a, is_expanded=True))


def test_operands_that_no_descriptor_can_hold_get_pointers() -> None:
    asked = product(4096, 4096, 4096)
    assert choose("H200-SXM", expanded(asked)).kernel == "gemm.pointer"
    assert choose("H200-SXM", triton(asked)).kernel == "gemm.descriptor"


def test_copying_a_large_misaligned_operand_for_one_row_is_not_worth_it() -> None:
    """Copying B reads and writes it before the product reads it again; with one row of A nothing hides that."""
    narrow = product(16, 20000, 20001)
    assert narrow.copied_bytes > 0
    assert choose("H200-SXM", product(8192, 8192, 8191)).kernel != "gemm.pointer"


def test_batches_count_as_more_tiles() -> None:
    one = product(512, 512, 512)
    many = replace(one, batch=64)
    assert choose("H200-SXM", one) != choose("H200-SXM", many)


def test_best_starts_with_the_first_choice_and_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    without_winners(monkeypatch)
    asked = replace(product(1024, 3072, 768), no_library="our kernels alone")
    choices = best_configs(H200, asked, 8)
    assert choices[0].program == choose("H200-SXM", asked).program
    assert len({(c.kernel, *sorted(c.config.items())) for c in choices}) == 8
    assert len({c.kernel for c in best_configs(H200, asked, 64)}) >= 2
    expected = [c.seconds for c in choices]
    assert expected[1:] == sorted(expected[1:])
    # The first choice is the preferred one among those that take hardly longer than the least.
    assert expected[0] <= expected[1]


def test_the_first_choice_is_the_best_of_the_kernels_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged, the kernels' tables give what the fastest of them gives."""
    without_winners(monkeypatch)
    for sizes in ((4096, 4096, 4096), (64, 8192, 8192), (1024, 1000, 1000), (8192, 512, 512)):
        asked = product(*sizes)
        least = {spec.full_name: seconds_of("H200-SXM", asked, spec.full_name) for spec in KERNELS}
        choice = choose("H200-SXM", asked)
        assert choice.seconds == min(least.values())
        assert least[choice.kernel] <= (1 + TIE) * choice.seconds


def seconds_of(gpu_name: str, asked: Product, kernel: str = "") -> float:
    """Least expected time in the tables of all kernels, or of one."""
    gpu = load_gpu(gpu_name)
    times = []
    for each in candidates.priced(gpu, asked):
        leader = candidates._leader(gpu, asked, *each, counts_host=False)
        if kernel in ("", leader.name):
            times.extend(leader.seconds.tolist())
    return min(times, default=np.inf)


def lying(width_bytes: int, step_bytes: int, asked: Product) -> Product:
    """The same with rows of both operands that allow accesses so wide and start at such multiples."""
    a, b = (replace(t, width_bytes=width_bytes, step_bytes=step_bytes) for t in (asked.a, asked.b))
    return replace(asked, a=a, b=b)


@pytest.mark.parametrize("gpu_name", ["H200-SXM", "A100-SXM4-80GB", "MI300X"])
def test_narrower_loads_and_rows_within_lines_never_look_faster(gpu_name: str) -> None:
    whole = product(1024, 1024, 1024)
    times = [seconds_of(gpu_name, lying(16, step, whole)) for step in (128, 64, 32, 16)]
    assert times == sorted(times)
    times = [seconds_of(gpu_name, lying(width, 16, expanded(whole))) for width in (16, 8, 4, 2)]
    # Different tables: a configuration may be in one and not in the other.
    assert all(later >= 0.99 * earlier for earlier, later in pairwise(times))
    assert times[-1] > 1.3 * times[0] or gpu_name == "MI300X"


def test_operands_of_even_rows_are_not_copied_for_a_small_product() -> None:
    """As measured on an H200: loads of 8 bytes beat a copy for 100x300x5000; for odd rows the copy wins."""
    narrow = product(100, 300, 5000)
    assert (narrow.a.width_bytes, narrow.b.width_bytes, narrow.b.is_copied) == (16, 8, True)
    assert choose("H200-SXM", narrow).kernel == "gemm.pointer"
    assert choose("H200-SXM", product(333, 777, 1555)).kernel == "gemm.descriptor"


def test_sizes_that_are_multiples_of_8_take_hardly_longer_than_those_of_16() -> None:
    """16-bit rows of 1000 elements are loaded 16 bytes at a time."""
    for gpu_name in ("A100-SXM4-80GB", "MI300X"):
        assert seconds_of(gpu_name, product(1000, 1000, 1000)) < 1.6 * seconds_of(gpu_name, product(1008, 1008, 1008))


def test_without_a_compiler_for_cuda_no_kernel_in_cuda_is_chosen() -> None:
    spec, asked = gemm_spec("gemm.cuda"), product(5000, 5000, 5000)
    assert not spec.refusal(H200, asked)
    assert "pip install 'constrint[cuda]'" in spec.refusal(H200, triton(asked))
    assert choose("h200", triton(asked)).kernel != "gemm.cuda"
    others = {"gemm.pointer", "gemm.descriptor"}
    assert {c.kernel for c in best_configs(H200, ours(triton(asked)), 64)} <= others


def test_a_dtype_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"V100.* has no matrix instruction for bf16"):
        choose("v100", product(64, 64, 64))


@pytest.fixture
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What devices refuse in a test is forgotten after it."""
    begin_anew(monkeypatch)
    yield
    forget()


@pytest.mark.usefixtures("_forgotten")
def test_a_refused_choice_is_never_made_again_for_that_product() -> None:
    asked, other = ours(product(4096, 4096, 4096)), product(4096, 4096, 4096, bias=1)
    first, elsewhere = choose("h200", asked), choose("h200", other)
    second = refuse_step(first, "shared memory", 240_000, 232_448)
    assert second != first
    assert choose("h200", asked) == second
    assert second.seconds >= first.seconds
    # A product of another kind is not concerned, nor is another GPU.
    assert choose("h200", other) == elsewhere
    assert choose("b200", asked).gpu == load_gpu("b200")


@pytest.mark.usefixtures("_forgotten")
def test_refused_shared_memory_leaves_what_takes_as_much_less() -> None:
    """240,000 bytes were compiled where fewer were stated: what follows fits if stated as much too low."""
    asked = ours(product(4096, 4096, 4096))
    first = choose("h200", asked)
    stated: dict[str, list[int]] = {}
    for choice in (first, refuse_step(first, "shared memory", 300_000, 232_448)):
        spec = gemm_spec(choice.kernel)
        use = use_of(spec, H200, asked.workload, spec.problem(H200, asked.workload))
        stated.setdefault(choice.kernel, []).append(smem_of(use, choice.config))
    for taken in stated.values():
        assert all(later <= taken[0] * 232_448 / 300_000 for later in taken[1:])


@pytest.mark.usefixtures("_forgotten", "models_alone")
@pytest.mark.parametrize(
    "asked",
    [
        *(product(4096, 4096, 4096, "fp8"), product(1000, 1000, 1000), product(16, 4096, 4096)),
        # Of one kernel all rows that are sure not to spill were among the refused ones: another kernel had some.
        product(67, 150, 1241, "tf32", three_pass=1),
    ],
)
def test_after_two_that_spill_comes_one_that_is_all_but_sure_not_to(asked: Product) -> None:
    """Each differs from those that spilled in what decides about registers, and is slower by prediction."""
    asked = ours(asked)
    chosen = [choose("h200", asked)]
    for _ in range(2):
        chosen.append(refuse_step(chosen[-1], REGISTERS, 16, 0))
    assert len({deciding(asked, c) for c in chosen}) == 3
    expected = [one.seconds for one in chosen]
    assert all(later >= (1 - TIE) * earlier for earlier, later in pairwise(expected))
    last = chosen[-1]
    columns = {name: np.array([value]) for name, value in last.config.items()}
    assert blocks_of(H200, gemm_spec(last.kernel), asked, columns).chances[0] <= 0.01
    shares = [share_of_registers(asked, choice) for choice in chosen]
    for choice, share in zip(chosen[:-1], shares, strict=False):
        assert choice.kernel != last.kernel or shares[-1] <= 0.75 * share


def share_of_registers(asked: Product, choice: Decision) -> float:
    """Registers that a thread is estimated to need over those that it may have."""
    use = use_of(spec := gemm_spec(choice.kernel), H200, asked.workload, spec.problem(H200, asked.workload))
    return use.registers_per_thread.value(choice.config) / most_registers(H200, use.warps).value(choice.config)


def deciding(asked: Product, choice: Decision) -> tuple[object, ...]:
    """The kernel, and the values of the parameters that its registers depend on."""
    spec = gemm_spec(choice.kernel)
    use = use_of(spec, H200, asked.workload, spec.problem(H200, asked.workload))
    names = sorted(use.registers_per_thread.variables & choice.config.keys())
    return choice.kernel, *(choice.config[name] for name in names)


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.usefixtures("models_alone")
def test_a_kernel_whose_every_configuration_is_refused_leaves_the_others() -> None:
    asked = replace(triton(product(4096, 4096, 4096)), no_library="our kernels alone")
    choice = choose("h200", asked)
    assert choice.kernel == DESCRIPTOR.full_name
    while choice.kernel != POINTER.full_name:
        choice = next_choice(asked, choice)
    with pytest.raises(InfeasibleError, match="nothing else is left"):
        refuse_all(asked, choice)


def next_choice(asked: Product, choice: Decision) -> Decision:
    return refuse_step(choice, "threads", 2, 1)


def refuse_all(asked: Product, choice: Decision) -> None:
    while True:
        choice = next_choice(asked, choice)


def test_without_a_model_there_is_no_other_choice() -> None:
    program = Program("gemm.pointer", (Step("product", "gemm.pointer", {"num_warps": 4}),))
    decision = Decision(request_of(None, product(64, 64, 64)), program)
    with pytest.raises(InfeasibleError, match="without a hardware model there is no other choice"):
        refuse_step(decision, "threads", 2, 1)


def test_output_bytes_of_every_dtype_are_those_of_its_own_type() -> None:
    assert {dtype: product(64, 64, 64, dtype).output_bytes for dtype in POINTER.dtypes} == dict(OUTPUT_BYTES)
