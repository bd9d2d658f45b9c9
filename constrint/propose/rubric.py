"""Scores of several suggestions for one prompt: the rubric of the six-kernel study, pass@k, fast_p, and intervals.

The rubric is that of "Evaluation of OpenAI Codex for HPC Parallel Programming Models Kernel Generation" (Godoy et al.,
arXiv 2306.15121): five levels for up to ten suggestions. pass@k is the unbiased estimator of "Evaluating Large Language
Models Trained on Code" (Chen et al., arXiv 2107.03374), fast_p that of KernelBench (Ouyang et al., arXiv 2502.10517).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Most suggestions of a prompt: as many as the study looks at.
MOST_SUGGESTIONS = 10
#: Quantile of the normal distribution for intervals of 95 %, and the resamples of a bootstrap.
QUANTILE, RESAMPLES = 1.959963984540054, 2000


@dataclass(frozen=True)
class Level:
    """A level of the rubric.

    Args:
        score: The score, 0 to 1.
        name: The study's name of the level.
        meaning: The condition in our words.
    """

    score: float
    name: str
    meaning: str


NON_KNOWLEDGE = Level(0.0, "non-knowledge", "there is no code, or none of it is right")
NOVICE = Level(0.25, "novice", "some code is right, and some is written in another programming model")
LEARNER = Level(0.5, "learner", "some code is right, some is wrong, and all is in the named programming model")
PROFICIENT = Level(0.75, "proficient", "all code is right and in the named programming model")
EXPERT = Level(1.0, "expert", "there is one suggestion, and it is right")
LEVELS = (NON_KNOWLEDGE, NOVICE, LEARNER, PROFICIENT, EXPERT)


def level_of(num_suggestions: int, num_right: int, num_others: int) -> Level:
    """The level of a prompt's suggestions.

    Args:
        num_suggestions: All suggestions.
        num_right: The right ones among those in the named programming model.
        num_others: Those in another programming model.
    """
    if not num_right:
        return NON_KNOWLEDGE
    if num_others:
        return NOVICE
    if num_right < num_suggestions:
        return LEARNER
    return EXPERT if num_suggestions == 1 else PROFICIENT


def pass_at(k: int, num_suggestions: int, num_right: int) -> float | None:
    """The chance that one of k suggestions is right; None where there are fewer than k, which no estimator allows.

    Formula: 1 - C(n - c, k) / C(n, k) for n suggestions of which c are right.
    """
    if num_suggestions < k:
        return None
    return 1.0 - math.comb(num_suggestions - num_right, k) / math.comb(num_suggestions, k)


def wilson(num_right: int, num_all: int) -> tuple[float, float]:
    """Wilson's interval of 95 % of a share; 0 to 1 where there is nothing.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927.
    """
    if not num_all:
        return 0.0, 1.0
    share, square = num_right / num_all, QUANTILE**2
    centre = (share + square / (2 * num_all)) / (1 + square / num_all)
    half = QUANTILE * math.sqrt(share * (1 - share) / num_all + square / (4 * num_all**2)) / (1 + square / num_all)
    return max(0.0, centre - half) if num_right else 0.0, min(1.0, centre + half) if num_right < num_all else 1.0


def of_one_in(k: int, interval: tuple[float, float]) -> tuple[float, float]:
    """The interval of pass@k that follows from the interval of one suggestion's chance p: 1 - (1 - p)^k."""
    return 1.0 - (1.0 - interval[0]) ** k, 1.0 - (1.0 - interval[1]) ** k


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The interval of 95 % of a mean over prompts: percentiles over resamples of the prompts, of a fixed seed."""
    chance = random.Random(0)
    means = sorted(math.fsum(chance.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    return means[round(0.025 * (RESAMPLES - 1))], means[round(0.975 * (RESAMPLES - 1))]
