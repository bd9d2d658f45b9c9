"""Searches propose the next configuration of a workload: the cost model corrected by times, random, Optuna, a model.

Each is a plug-in by name (`registry`) behind two methods, `ask` and `tell` (`interface`). `maker` makes searches ahead,
in other processes. `model` is the default: it earns its files (`regression`, `points`, `learned`) by finding in 8
trials what others do not find in 32. `samplers` are the peers that it is compared with; `llm` asks a language model.
"""
