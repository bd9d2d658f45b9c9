"""The tuner: a session per workload asks a search for configurations and an engine for trials; a store keeps records.

tuner      the loop over workloads; session    one workload; goals      the workloads to tune
search/    which configuration is next: model, random, optuna, llm
engine/    where trials run: this machine or a Ray cluster
store/     records, winners, and formats of other tools
compile, pool, check, measure    one trial: compiled for a named GPU, checked against a reference, timed
"""

from constrint.select.candidate import CompiledKernel
from constrint.tune.assembly import assembly_of, count_instructions
from constrint.tune.compile import BuiltKernel, TritonSource, build_triton, compile_triton
from constrint.tune.pool import compile_many
from constrint.tune.signature import triton_source
from constrint.tune.trial import Outcome, Trial

__all__ = [
    "BuiltKernel",
    "CompiledKernel",
    "Outcome",
    "Trial",
    "TritonSource",
    "assembly_of",
    "build_triton",
    "compile_many",
    "compile_triton",
    "count_instructions",
    "triton_source",
]
