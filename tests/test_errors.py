"""Unknown names: the nearest ones, or all of a few."""

from __future__ import annotations

import pytest

from constrint.errors import UnknownNameError

DTYPES = ("bf16", "fp16", "fp8", "int8", "tf32")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("fp64", ()), ("fp17", ()), ("fb16", ("fp16", "bf16")), ("fp32", ("tf32",)), ("int4", ())],
)
def test_of_a_few_names_all_are_listed_and_another_number_is_no_slip(name: str, nearest: tuple[str, ...]) -> None:
    error = UnknownNameError("dtype", name, DTYPES)
    assert set(error.nearest) == set(nearest)
    assert str(error).endswith("Known: bf16, fp16, fp8, int8, tf32.")
    assert ("Nearest" in str(error)) == bool(nearest)


def test_of_many_names_the_nearest_are_listed() -> None:
    error = UnknownNameError("GPU", "h20", [f"H{n}00" for n in range(1, 10)] + ["A100"])
    assert error.nearest
    assert "Known" not in str(error)
    assert "Known: " in str(UnknownNameError("GPU", "zzz", [f"H{n}00" for n in range(1, 10)]))
