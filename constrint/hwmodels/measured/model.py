"""The model of a measured device, and its file in the user's folder.

A device of a known model gets that model with what was unknown filled in. Another one gets a model from the nearest GPU
of the same target: the architecture is that GPU's, the sizes are those that the device reports, peaks follow from both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from constrint.errors import UsageError
from constrint.hwmodels.detection import DetectedDevice
from constrint.hwmodels.files import read_yaml, user_folders
from constrint.hwmodels.load import load_all, load_gpu
from constrint.hwmodels.measured.quantities import DeviceRates
from constrint.hwmodels.schema import GpuModel, MeasuredHere
from constrint.hwmodels.write import yaml_of

#: Source of the measured values; files with it are the command's own, which it may write anew.
SOURCE = "MEASURED_HERE"
#: Source of what a device says of itself.
REPORTED = "REPORTED_HERE"


def model_of_device(device: DetectedDevice) -> GpuModel:
    """The model of a device: the known one, or one from the nearest GPU of its target.

    Raises:
        UsageError: When no model has the target, or the device does not report what a model needs.
    """
    known = None if device.model is None else load_gpu(device.model)
    if known is not None and SOURCE in known.sources:  # measured before: its values are measured anew
        known = next((gpu for gpu in load_all() if gpu.name == known.name), None)
    if known is not None:
        return known
    same = [gpu for gpu in load_all() if device.target in (gpu.arch.target, gpu.compiler_target)]
    if not same or device.sm_count is None or device.memory_bytes is None:
        raise UsageError(
            f"{device.name}: no model has the target {device.target}, or the device does not report its size; "
            "write a file by hand (`constrint docs own_gpu`), from the nearest GPU: `constrint gpu NAME --yaml`."
        )
    count = device.sm_count
    return _like(min(same, key=lambda gpu: abs(gpu.device.sm_count - count)), device)


def _like(near: GpuModel, device: DetectedDevice) -> GpuModel:
    """A model of an unknown device; rates are those of the near GPU for each SM, at its clock."""
    counts = near.maker.device_facts(near).sm_counts
    count = (device.sm_count or 0) * (near.device.sm_count // min(counts))
    dies = near.device.num_xcds if count % near.device.num_xcds == 0 else 1
    scale = count / near.device.sm_count

    def rates(stated: Mapping[Any, float | None] | None) -> dict[Any, Any] | None:
        return None if stated is None else {dtype: rate and rate * scale for dtype, rate in stated.items()}

    replace, compute = msgspec.structs.replace, near.compute
    paths = [f"compute.matrix_flop_per_s.{dtype}" for dtype in compute.matrix_flop_per_s]
    guessed = [*paths, "memory.dram.bandwidth_bytes_per_s", "device.boost_clock_hz"]
    return replace(
        near,
        name=re.sub(r"[^A-Za-z0-9.-]+", "-", device.name).strip("-.") or "My-GPU",
        aliases=(device.name,),
        device=replace(
            near.device,
            sm_count=count,
            num_xcds=dies,
            sms_per_xcd=None if near.device.sms_per_xcd is None else count // dies,
            sources=(REPORTED, *near.device.sources),
        ),
        memory=replace(
            near.memory,
            l2=replace(
                near.memory.l2,
                size_bytes=device.l2_bytes and device.l2_bytes * dies,
                size_bytes_per_xcd=device.l2_bytes if near.memory.l2.size_bytes_per_xcd else None,
                bandwidth_bytes_per_s=None,
                sources=(REPORTED, *near.memory.l2.sources),
            ),
            dram=replace(
                near.memory.dram,
                size_bytes=device.memory_bytes,
                bus_width_bits=None,
                data_rate_bits_per_s=None,
                sources=(REPORTED, *near.memory.dram.sources),
            ),
        ),
        compute=replace(
            compute,
            matrix_flop_per_s=rates(compute.matrix_flop_per_s),
            vector_flop_per_s=rates(compute.vector_flop_per_s),
            packed_vector_flop_per_s=rates(compute.packed_vector_flop_per_s),
            matrix_fp16_accumulate_flop_per_s=rates(compute.matrix_fp16_accumulate_flop_per_s),
            sustained_matrix_fraction=None,
            sources=(REPORTED, *compute.sources),
        ),
        unconfirmed=_with(near.unconfirmed, dict.fromkeys(guessed, f"as of {near.name}, for each SM")),
        sources={REPORTED: f"device: what {device.name} reports of itself through {device.source}", **near.sources},
    )


def measured_model(gpu: GpuModel, found: DeviceRates, provenance: str, today: date) -> GpuModel:
    """The model with what was measured; where it has no rate of a data sheet, the copy's rate is the DRAM's.

    Args:
        gpu: The model of the device.
        found: The measurements.
        provenance: Device, driver and versions of the tools.
        today: The day of the measurement.
    """
    replace = msgspec.structs.replace
    share = found.matrix_share.get("bf16", found.matrix_share.get("fp16"))
    dram = gpu.memory.dram
    if REPORTED in gpu.sources and found.dram_bytes_per_s is not None:
        dram = replace(dram, bandwidth_bytes_per_s=found.dram_bytes_per_s, sources=(SOURCE, *dram.sources))
    l2 = gpu.memory.l2
    if l2.bandwidth_bytes_per_s is None and found.l2_bytes_per_s is not None:
        faster = max(found.l2_bytes_per_s, dram.bandwidth_bytes_per_s)
        l2 = replace(l2, bandwidth_bytes_per_s=faster, sources=(SOURCE, *l2.sources))
    compute = gpu.compute
    if compute.sustained_matrix_fraction is None and share is not None:
        compute = replace(compute, sustained_matrix_fraction=min(1.0, share), sources=(SOURCE, *compute.sources))
    rate = found.dram_bytes_per_s
    block = MeasuredHere(
        sources=(SOURCE,),
        dram_share=None if rate is None else min(1.0, rate / dram.bandwidth_bytes_per_s),
        launch_s=found.launch_s,
        sustained_fp8_fraction=_capped(found.matrix_share.get("fp8")),
        sustained_int8_fraction=_capped(found.matrix_share.get("int8")),
    )
    known = {path for path, value in (("memory.l2.bandwidth_bytes_per_s", l2.bandwidth_bytes_per_s),) if value}
    return replace(
        gpu,
        memory=replace(gpu.memory, l2=l2, dram=dram),
        compute=compute,
        measured=block,
        unconfirmed=tuple(entry for entry in gpu.unconfirmed if entry.partition(":")[0].strip() not in known),
        notes=(*gpu.notes, *(f"measured here: {line}" for line in in_words(found, gpu)), *found.remarks),
        sources={SOURCE: f"device: measured here on {today.isoformat()}: {provenance}", **gpu.sources},
    )


def in_words(found: DeviceRates, gpu: GpuModel) -> list[str]:
    """The measurements, a line each."""
    lines = []
    if found.dram_bytes_per_s is not None:
        share = found.dram_bytes_per_s / gpu.memory.dram.bandwidth_bytes_per_s
        lines.append(f"a copy moves {found.dram_bytes_per_s / 1e9:,.0f} GB/s of DRAM, {share:.0%} of its stated rate")
    if found.l2_bytes_per_s is not None:
        lines.append(f"the L2 gives {found.l2_bytes_per_s / 1e12:.2f} TB/s")
    if found.launch_s is not None:
        lines.append(f"the smallest kernel takes {found.launch_s * 1e6:.2f} us")
    lines += [f"{dtype} products keep up {share:.0%} of the stated peak" for dtype, share in found.matrix_share.items()]
    return lines


def write_model(gpu: GpuModel) -> Path:
    """Write the file into the user's folder.

    Raises:
        UsageError: When another file of that name is there, or the folder cannot be written.
    """
    path = user_folders()[0] / f"{gpu.name.lower()}.yaml"
    if path.exists() and SOURCE not in (read_yaml(path) or {}).get("sources", {}):
        raise UsageError(f"{path} is there and was not written by --detect --write; move it away first.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml_of(gpu), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}.") from None
    return path


def _capped(share: float | None) -> float | None:
    return None if share is None else min(1.0, share)


def _with(entries: tuple[str, ...], more: Mapping[str, str]) -> tuple[str, ...]:
    """Entries of `unconfirmed`, with others in place of those of the same key."""
    kept = (entry for entry in entries if entry.partition(":")[0].strip() not in more)
    return (*kept, *(f"{path}: {reason}" for path, reason in more.items()))
