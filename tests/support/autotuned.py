"""Small Triton kernels behind `constrint.autotune`, run in Triton's interpreter and on GPUs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl

import constrint

SPACE = constrint.space(
    params={"tile": [256, 64, 128], "num_warps": [2, 1]},
    rules=["num_warps * warp_size <= tile", "tile <= 4 * n"],
    registers="16 + 2 * cdiv(tile, num_warps * warp_size)",
    outputs=["out"],
)


@triton.jit
def add_kernel(x, y, out, n, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def wrong_kernel(x, y, out, n, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    # Only with one of the tiles is the result the sum.
    other = tl.load(y + at, mask=at < n) * (1 if tile == 128 else 2)
    tl.store(out + at, tl.load(x + at, mask=at < n) + other, mask=at < n)


@triton.jit
def accumulate_kernel(x, total, n, tile: tl.constexpr, kind: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    values = tl.load(x + at, mask=at < n, other=0.0)
    if kind == "square":
        values = values * values
    tl.atomic_add(total, tl.sum(values, axis=0))


@triton.heuristics({"is_whole": lambda given: given["n"] % given["tile"] == 0})
@triton.jit
def double_kernel(x, out, n, tile: tl.constexpr, is_whole: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    if is_whole:
        tl.store(out + at, 2 * tl.load(x + at))
    else:
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def rows_kernel(x, bias, out, m, n, x_row, bias_row, out_row, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, tile)
    values = tl.load(x + row * x_row + at, mask=at < n) + tl.load(bias + row * bias_row + at, mask=at < n)
    tl.store(out + row * out_row + at, values, mask=at < n)


def blocks(meta: Mapping[str, Any]) -> tuple[int]:
    """The grid of all of them."""
    return (triton.cdiv(meta["n"], meta["tile"]),)


def added(case: dict[str, Any]) -> dict[str, Any]:
    """A sum, chosen by the model or measured; what was chosen, and whether the call's tensors were left alone."""
    device, n = case.get("device", "cpu"), case["n"]
    kernel = constrint.autotune(SPACE, key=["n"], tune=case["tune"], trials=3)(add_kernel)
    x, y, out = (torch.randn(n, device=device) for _ in range(3))
    before = x.clone(), y.clone()
    kernel[blocks](x, y, out, n)
    first = kernel.best_config.kwargs
    is_right = torch.equal(out, x + y) and torch.equal(x, before[0]) and torch.equal(y, before[1])
    kernel[lambda meta: blocks(meta)](x=x, y=y, out=out, n=n)
    records = [record for one in kernel.records.values() for record in one]
    return {
        "is_right": is_right,
        "tile": first["tile"],
        "num_warps": kernel.best_config.num_warps,
        "keys": len(kernel.cache),
        "outcomes": [record.outcome for record in records],
        "finals": sum(record.figures is not None and record.figures.is_final for record in records),
        "recorded": records[0].config if records else None,
    }


def refused(case: dict[str, Any]) -> dict[str, Any]:
    """Candidates against a reference that all but one tile break."""
    device = case.get("device", "cpu")
    space = constrint.space(
        params={"tile": [256, 64, 128], "num_warps": [2]},
        outputs=["out"],
        reference=lambda given: {"out": given["x"].double() + given["y"].double()} if case["has_reference"] else {},
    )
    kernel = constrint.autotune(space, key=["n"], tune="first_call")(wrong_kernel)
    x, y, out = (torch.randn(1000, device=device) for _ in range(3))
    kernel[blocks](x, y, out, 1000)
    outcomes = {record.config["tile"]: record.outcome for record in next(iter(kernel.records.values()))}
    outcomes_by_name = {str(tile): outcome for tile, outcome in outcomes.items()}
    return {
        "outcomes": outcomes_by_name,
        "is_right": torch.allclose(out, x + y),
        "tile": kernel.best_config.kwargs["tile"],
    }


def accumulated(case: dict[str, Any]) -> dict[str, Any]:
    """A kernel that adds to what is there, with a parameter that is text."""
    device = case.get("device", "cpu")
    space = constrint.space(
        params={"tile": [256, 64], "kind": ["square", "plain"], "num_warps": [2]}, rules=["kind == 'square'"]
    )
    kernel = constrint.autotune(space, key=["n"], tune="first_call", reset_to_zero=["total"])(accumulate_kernel)
    x, total = torch.randn(500, device=device), torch.full((1,), 3.0, device=device)
    kernel[blocks](x, total, 500)
    return {
        "error": float((total - 3.0 - (x * x).sum()).abs().item()),
        "kind": kernel.best_config.kwargs["kind"],
        "outcomes": [record.outcome for record in next(iter(kernel.records.values()))],
    }


def strided(case: dict[str, Any]) -> dict[str, Any]:
    """Tensors whose rows lie apart, and rows that are one: the copies of a trial are laid out alike."""
    device = case.get("device", "cpu")
    whole = torch.full((6, 40), 9.0, device=device)
    x, bias, out = (
        torch.randn(6, 50, device=device)[:, 3:33],
        torch.randn(30, device=device).expand(6, 30),
        whole[:, 5:35],
    )
    kernel = constrint.autotune(
        constrint.space({"tile": [32, 64], "num_warps": [1]}), key=["m", "n"], tune="first_call"
    )(rows_kernel)
    kernel[(6,)](x, bias, out, 6, 30, x.stride(0), bias.stride(0), out.stride(0))
    untouched = torch.cat([whole[:, :5], whole[:, 35:]], dim=1)
    return {
        "is_right": torch.equal(out, x + bias) and bool((untouched == 9.0).all()),
        "outcomes": [record.outcome for record in next(iter(kernel.records.values()))],
    }


def doubled(case: dict[str, Any]) -> dict[str, Any]:
    """A kernel with `triton.heuristics` between the decorators."""
    device = case.get("device", "cpu")
    kernel = constrint.autotune(constrint.space({"tile": [64, 128], "num_warps": [1]}), key=["n"])(double_kernel)
    right = []
    for n in (128, 100):
        x, out = torch.randn(n, device=device), torch.zeros(n, device=device)
        kernel[blocks](x, out, n)
        right.append(torch.equal(out, 2 * x))
    return {"right": right, "keys": len(kernel.cache)}


def kept(case: dict[str, Any]) -> dict[str, Any]:
    """Tune, and ask a second kernel of the same source and space: it measures nothing."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, CONSTRINT_CACHE=folder):
        return _kept()


def _kept() -> dict[str, Any]:
    first = added({"n": 300, "tune": "first_call"})
    second = added({"n": 300, "tune": "first_call"})
    third = added({"n": 300, "tune": "never"})
    other = added({"n": 301, "tune": "first_call"})
    return {"first": first, "second": second, "third": third, "other": other}


def whole_spec(case: dict[str, Any]) -> dict[str, Any]:
    """A whole spec, measured at the first call: on inputs of its own, and recorded where `constrint tune` records."""
    from constrint.tune.store.store import RecordStore

    example: Any = import_module("examples.layer_norm.layer_norm")
    device = case.get("device", "cpu")
    x, weight, bias = (torch.randn(size, device=device) for size in ((6, 20), (20,), (20,)))

    def called(tune: str) -> Any:
        kernel = constrint.autotune(example.SPEC, key=["m", "n"], tune=tune, trials=2)(example.layer_norm_kernel)
        y = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(6, meta["tile_m"]),)](x, weight, bias, y, 6, 20, 1e-5)
        torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (20,), weight, bias))
        return kernel

    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, CONSTRINT_CACHE=folder):
        tuned, later = called("first_call"), called("never")
        with RecordStore.open() as store:
            recorded = [record.config for record in store.find(kernel="layer_norm")]
    records = [record for one in tuned.records.values() for record in one]
    return {
        "outcomes": [record.outcome for record in records],
        "errors": [record.error_over_bound for record in records if record.error_over_bound is not None],
        "recorded": len(recorded),
        "is_found_again": tuned.best_config.all_kwargs() == later.best_config.all_kwargs(),
    }


def run(case: dict[str, Any]) -> dict[str, Any]:
    """One of the above."""
    scenarios = {
        "added": added,
        "refused": refused,
        "accumulated": accumulated,
        "doubled": doubled,
        "kept": kept,
        "strided": strided,
        "whole_spec": whole_spec,
    }
    return scenarios[case["what"]](case)
