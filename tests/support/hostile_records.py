"""Records with all that text and numbers can be, from hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from constrint.tune.store.record import Compiled, Figures, TuningRecord

#: Text with everything that Unicode has, and now and then a lone surrogate, which no file can hold.
TEXTS = st.text(max_size=8) | st.sampled_from(["\0", "\ud800", "", "'; DROP TABLE x; --", "é\u202e", "\n,", "NaN"])
NAMES = st.text(min_size=1, max_size=8) | TEXTS
FLOATS = st.floats()
VALUES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOATS | TEXTS | st.just(10**400)
)
RECORDS = st.builds(
    TuningRecord,
    kernel=NAMES,
    operation=NAMES,
    gpu=NAMES,
    dtype=NAMES,
    sizes=st.dictionaries(TEXTS, st.integers(), max_size=3),
    options=st.dictionaries(TEXTS, st.integers(), max_size=2),
    fixed=st.dictionaries(TEXTS, st.integers(), max_size=2),
    config=st.dictionaries(TEXTS, VALUES, max_size=4),
    outcome=st.sampled_from(["ok", "crashed", "wrong_result"]),
    run=NAMES,
    created=FLOATS,
    message=TEXTS,
    source_hash=TEXTS,
    toolchain=st.dictionaries(TEXTS, TEXTS, max_size=2),
    predicted_s=st.none() | FLOATS,
    error_over_bound=st.none() | FLOATS,
    figures=st.none() | st.builds(Figures, median_s=FLOATS, spread_s=FLOATS, num_rounds=st.integers()),
    compiled=st.none() | st.builds(Compiled, registers=st.integers(), spill_bytes=st.just(0), smem_bytes=st.just(0)),
)
