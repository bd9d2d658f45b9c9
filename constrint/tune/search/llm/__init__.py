"""A language model as a search of the tuner: `constrint tune --search llm` and `constrint propose`.

The flow of one round, a file for each step:

    facts      the kernels, the GPU's limits, the ranking, winners nearby and all results so far
    prompt     the question as text, for a model (`client`), the built-in `rules` or a `transcript`
    parse      the reply becomes typed `records`, or refusals; nothing in it is evaluated
    resolve    each proposal AND its kernel's certain rules: the configurations that remain can run
    gates      compiled for the GPU, then a trial of the tuner: checked and timed
    judge      a verdict on each candidate, part of the next question
    search     the loop over rounds, as the tuner's `ask` and `hear`
    run        the conversation and the searches of one run; `provenance` stores proposals, `outcome` sums them up
    endpoint   the address and the key, which `hiding` keeps out of all text

It earns its lines where a person or a model knows more of a kernel than its cost model states. The built-in rules
(`strategies`, `actions`) use the same mechanism without a model.
"""
