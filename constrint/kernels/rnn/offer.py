"""What an implementation of a recurrent layer offers: its choices, and its times as far as they are known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.select.candidate import Config
from constrint.select.first_choice import Choice

#: Values of `recompute`, for both directions together: pre-activations are stored, or computed again.
STORED, COMPUTED_AGAIN = 0, 1
#: Where one implementation's loop was measured, the prediction of another one that was not has to be below this share
#: of it: most likely that one was tuned, too, and lost; and the least of many predictions is rather too small.
CLEARLY_FASTER = 0.8


@dataclass(frozen=True)
class Offer:
    """What an implementation says to a layer.

    Args:
        backend: The implementation's name.
        refusal: Why it cannot run the layer; empty if it can.
        seconds: Predicted time by direction; empty where nothing is predicted.
        choices: What is launched, by direction; empty where there is no model of the device.
        note: What its prediction rests on, or what it does to the layer.
        projects: Whether it projects the inputs itself, so that modules alone can run it.
        measured: Measured time of the whole layer by direction, where the kernels' own layers were measured, with what
            is predicted of further steps. A library's time is compared with that: it rests on measured layers, too.
        tuned: Time of the directions whose choice is a measured winner: what is predicted, times what the winner's loop
            took over what is predicted of that.
    """

    backend: str
    refusal: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    note: str = ""
    projects: bool = False
    measured: Mapping[str, float] = field(default_factory=dict)
    tuned: Mapping[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """Predicted time of all directions."""
        return sum(self.seconds.values())

    @property
    def whole_s(self) -> float:
        """Time of all directions: of each as the layer was measured, or else its loop, or else as it is predicted."""
        return sum({**self.seconds, **self.tuned, **self.measured}.values())

    def compared_s(self, tuned: Collection[str]) -> float:
        """Time of all directions beside other kernels, of which some were measured in the directions `tuned`."""
        wary = {d: s / CLEARLY_FASTER if d in tuned else s for d, s in self.seconds.items()}
        return sum({**wary, **self.tuned}.values())

    @property
    def configs(self) -> Mapping[str, Config]:
        """Kernel configuration by direction; empty where there is nothing to configure."""
        return {direction: choice.config for direction, choice in self.choices.items() if choice.config}

    @property
    def recomputes(self) -> bool:
        """Whether the forward pass leaves the pre-activations to be computed again."""
        return any(choice.fixed.get("recompute") == COMPUTED_AGAIN for choice in self.choices.values())

    def to_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        choices = {direction: choice.to_plain() for direction, choice in self.choices.items()}
        stated = {"backend": self.backend, "refusal": self.refusal, "note": self.note, "projects": self.projects}
        times = {"seconds": self.seconds, "measured": self.measured, "tuned": self.tuned}
        return stated | {"choices": choices} | {name: dict(of) for name, of in times.items()}

    @staticmethod
    def from_plain(plain: Mapping[str, Any], gpu: GpuModel) -> Offer:
        """What `to_plain` gave.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: When it gave no such thing.
        """
        times = {key: {str(d): float(s) for d, s in plain[key].items()} for key in ("seconds", "measured", "tuned")}
        choices = {str(d): Choice.from_plain(choice, gpu) for d, choice in plain["choices"].items()}
        backend, refusal, note = (str(plain[name]) for name in ("backend", "refusal", "note"))
        return Offer(backend, refusal, choices=choices, note=note, projects=bool(plain["projects"]), **times)

    def times(self) -> str:
        """Render the predicted times."""
        if not self.seconds:
            return "no prediction"
        told = (("modelled", self.seconds), ("by measured winners", self.tuned), ("measured", self.measured))
        parts = ((word, ", ".join(f"{d} {1e3 * seconds:.3g} ms" for d, seconds in of.items())) for word, of in told)
        return "; ".join(f"{word} {part}" for word, part in parts if part)
