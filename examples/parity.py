"""Teach a recurrent layer parity on short sequences and test it on long ones.

    python examples/parity.py                # LSTM, trained to length 40, tested at 256
    python examples/parity.py --cell slstm --device cuda

The input is a sequence of bits, the target after each bit whether the number of ones so far is odd: a state that has to
be kept exactly for as long as the sequence runs. Training uses batches of mixed lengths, judges every step, and stops
when the loss on new sequences has been small for a while. Accuracy counts the answer after the last bit.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from constrint.flashrnn import GRU, LSTM, SLSTM, Elman

CELLS = {"lstm": LSTM, "gru": GRU, "slstm": SLSTM, "elman": Elman}


class Parity(nn.Module):
    """A recurrent layer between an embedding of the bits and two logits per step."""

    def __init__(self, cell: str, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(2, hidden_size)
        self.layer = CELLS[cell](hidden_size, hidden_size, batch_first=True, num_heads=num_heads)
        self.classify = nn.Linear(hidden_size, 2)

    def forward(self, bits: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Logits (B, T, 2) from bits (B, T)."""
        hidden, _ = self.layer(self.embed(bits), lengths=lengths)
        logits: Tensor = self.classify(hidden)
        return logits


def sample(batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random bits (B, T) and the parity so far after each of them."""
    bits = torch.randint(0, 2, (batch, length), generator=generator)
    return bits, bits.cumsum(1) % 2


@torch.no_grad()
def accuracy(model: Parity, length: int, device: str, generator: torch.Generator, batch: int = 1000) -> float:
    """Share of sequences whose last answer is right."""
    bits, targets = sample(batch, length, generator)
    answers = model(bits.to(device))[:, -1].argmax(1).cpu()
    return float((answers == targets[:, -1]).double().mean())


def train(model: Parity, options: argparse.Namespace, generator: torch.Generator) -> int:
    """Train until a batch of unseen sequences is right at every step; returns the number of batches."""
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    good = 0
    for step in range(1, options.max_steps + 1):
        bits, targets = sample(options.batch, options.train_length, generator)
        lengths = torch.randint(1, options.train_length + 1, (options.batch,), generator=generator)
        counted = (torch.arange(options.train_length) < lengths[:, None]).to(options.device)
        logits = model(bits.to(options.device), lengths)[counted]
        wanted = targets.to(options.device)[counted]
        loss = nn.functional.cross_entropy(logits, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        # Confident and right on sequences it has not seen, for a while: then it has the rule.
        good = good + 1 if loss.item() < options.target_loss else 0
        if good == options.patience:
            return step
        if step % 100 == 0:
            print(f"batch {step}: loss {loss.item():.4f}", flush=True)
    return int(options.max_steps)


def main() -> None:
    """Train, test at several lengths, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=CELLS, default="lstm")
    parser.add_argument("--hidden-size", type=int, default=64)
    parser.add_argument("--num-heads", type=int, default=1)
    parser.add_argument("--train-length", type=int, default=40)
    parser.add_argument("--test-lengths", type=int, nargs="+", default=[40, 256])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--max-steps", type=int, default=3000)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--target-loss", type=float, default=1e-3)
    parser.add_argument("--patience", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    model = Parity(options.cell, options.hidden_size, options.num_heads).to(options.device)
    started = time.perf_counter()
    steps = train(model, options, generator)
    print(f"{options.cell}: trained on {steps} batches in {time.perf_counter() - started:.1f} s on {options.device}")
    for length in options.test_lengths:
        print(f"length {length}: accuracy {accuracy(model, length, options.device, generator):.4f}")


if __name__ == "__main__":
    main()
