"""The request of `constrint propose`: its options, the GPU that they name, and the words that its tables share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from constrint.cli.llm_options import LlmOptions, say
from constrint.cli.options import Choice
from constrint.cli.output import Output
from constrint.errors import NoDeviceError, UsageError
from constrint.hwmodels import GpuModel, load_gpu

if TYPE_CHECKING:
    from constrint.tune.search.llm.records import GateResult
    from constrint.tune.search.llm.run import Conversation

SCHEMA = "constrint.propose/1"


@dataclass(frozen=True)
class ProposeRequest:
    """The options of the command; `choice` names the workload, `budget_s` is in seconds."""

    choice: Choice
    asking: LlmOptions
    rounds: int
    trials: int
    budget_s: float | None
    judges: bool
    transcript: Path | None
    replay: Path | None
    resume: bool
    is_modelled: bool
    store: str | None
    timeout_s: float
    device: str
    has_profile: bool
    output: Output

    def conversation(self, gpu: str, kernel: str, workload: str, otherwise: str) -> Conversation:
        """The run's conversation about a workload; `otherwise` proposes where no model is named."""
        return self.asking.conversation(
            otherwise, {"gpu": gpu, "kernel": kernel, "workload": workload}, self.rounds, self.trials,
            judges=self.judges, budget_s=self.budget_s, transcript=self.transcript, replay=self.replay,
            resume=self.resume, note=say,
        )  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The GPU that is proposed for.

    Args:
        gpu: The GPU's model.
        devices: Indices of the devices that measure; empty where the cost model replaces them.
        note: Reason for which nothing is measured; empty where something is.
    """

    gpu: GpuModel
    devices: tuple[int, ...]
    note: str = ""


def target_of(request: ProposeRequest) -> Target:
    """The named GPU, or that of this machine, and its devices here.

    Raises:
        UsageError: When no GPU is named and none is here.
    """
    named_gpu = None if request.choice.gpu is None else load_gpu(request.choice.gpu)
    if named_gpu is not None and request.is_modelled:
        return Target(named_gpu, (), "nothing is measured: --modelled")
    if request.device == "cpu":
        if named_gpu is None:
            raise UsageError("--device cpu needs --gpu NAME: the model by which configurations are chosen.")
        return Target(named_gpu, (0,))
    from constrint.hwmodels import detect
    from constrint.tune.engine.local import devices_of

    try:
        detected = detect()
    except NoDeviceError:
        detected = []
    if named_gpu is None:
        if not detected:
            raise UsageError("there is no GPU here: say which one is meant with --gpu NAME.")
        gpu, devices = devices_of(None)
        return Target(gpu, () if request.is_modelled else devices, "nothing is measured: --modelled")
    here = tuple(device.index for device in detected if device.model == named_gpu.name)
    if here:
        return Target(named_gpu, here)
    models = sorted({device.model or device.name for device in detected})
    present = f"this machine has {', '.join(models)}" if detected else "this machine has no GPU"
    return Target(
        named_gpu, (), f"{present}, so the cost model stands in for {named_gpu.name}: neither checked nor timed"
    )


def gate_text(gate: GateResult | None) -> str | None:
    """The cell of a gate: `yes`, `NO`, `modelled`, or nothing for a gate that was not reached."""
    if gate is None:
        return None
    return ("modelled" if gate.is_modelled else "yes") if gate.passed else "NO"
