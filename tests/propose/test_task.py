"""Tasks are found by name or in a user's file, and tell a proposer what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrint.errors import UnknownNameError, UsageError
from constrint.propose import find_task, list_tasks
from constrint.propose.task import file_of_task
from constrint.propose.values import LARGE, STYLES, generator
from tests.support.needs import needs_torch

pytestmark = needs_torch

OWN = '''
"""Twice its input."""
from constrint.propose import Expected, Extent, Operand, Task, register_task


class Double(Task):
    name = "NAME"
    summary = "y = 2 x."
    extents = (Extent("n", "elements", most=4096, usual=64, timed=2048),)

    def operands(self, sizes):
        return (Operand("x", (sizes["n"],)),)

    def outputs(self, inputs):
        return {"y": inputs["x"].new_empty(inputs["x"].shape)}

    def plain(self, *inputs):
        return inputs[0] * 2

    def reference(self, inputs):
        y = 2 * inputs["x"]
        return {"y": Expected(y, y.abs())}

    def num_terms(self, sizes):
        return 1

    def flops(self, sizes):
        return sizes["n"]


register_task(Double())
'''


def test_all_twelve_tasks_are_known() -> None:
    names = {"softmax", "layer_norm", "rms_norm", "cross_entropy", "rotary", "bias_gelu"}
    names |= {"axpy", "gemv", "gemm", "spmv", "jacobi", "cg"}
    assert names <= set(list_tasks())
    for name in names:
        task = find_task(name)
        assert task.name == name
        assert len(task.examples) >= 2


def test_a_task_tells_what_to_write() -> None:
    text = find_task("rotary").describe()
    assert text.startswith("Write `run(y, x, cos, sin)`: ")
    assert "- d: channels of a head, 1 to 256, a multiple of 2" in text
    assert "- cos: (t, d / 2) fp32" in text
    assert "eps = 1e-05." in find_task("layer_norm").describe()
    assert "return nothing" in text


def test_a_users_task_registers_itself(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN.replace("NAME", "double"))
    task = find_task(str(file))
    assert task.arguments == ("y", "x")
    assert find_task("double") is task
    assert find_task(f"{file}:double") is task
    assert file_of_task(f"{file}:double") == file
    assert file_of_task("softmax") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1", "it registers none; end it with register_task"),
        ("raise ImportError('no such thing')", "cannot be imported .ImportError: no such thing"),
        (OWN.replace("NAME", "one") + OWN.replace("NAME", "two"), "it registers one, two. Name one"),
    ],
)
def test_a_file_without_a_task_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(UsageError, match=why):
        find_task(str(file))


def test_unknown_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="softmax"):
        find_task("sotfmax")
    with pytest.raises(UsageError, match="no such file"):
        find_task(str(tmp_path / "none.py"))


@pytest.mark.parametrize("shape", [(1, 3), (7, 3), (5,)])
def test_every_set_of_large_values_has_a_row_of_the_largest(shape: tuple[int, ...]) -> None:
    import torch

    for seed in range(50):
        values = STYLES["large"](torch.ones(shape), generator(seed, "cpu"))
        assert values.max() == 2.0 ** (LARGE[1] - 1)
        assert values.min() >= 2.0 ** LARGE[0]
