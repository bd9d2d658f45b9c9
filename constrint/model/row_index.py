"""The rows of a table as numpy looks them up: many at once, by one number per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.model.intmath import INT64_MAX, INT64_MIN
from constrint.model.table import Table


class RowIndex:
    """The rows of a table as keys: every column's values are numbered, and a row is one number made of these."""

    def __init__(self, rule: Table) -> None:
        self.levels = [sorted({row[place] for row in rule.rows}) for place in range(len(rule.exprs))]
        self.arrays = [_listed(levels) for levels in self.levels]
        columns = zip(*rule.rows, strict=True)
        places = [np.searchsorted(array, _listed(column)) for array, column in zip(self.arrays, columns, strict=True)]
        self.fits = math.prod(map(len, self.levels)) < 1 << 62
        self.keys: NDArray[Any] = np.sort(self._keys(places)) if self.fits else np.zeros(0, dtype=np.int64)
        self.rows = frozenset(() if self.fits else rule.rows)

    def _keys(self, places: list[Any]) -> Any:
        keys: Any = 0
        for levels, at in zip(self.levels, places, strict=True):
            keys = keys * len(levels) + at
        return keys

    def has(self, columns: list[Any]) -> Any:
        """Which rows of columns, whose values may be of any size, are in the table."""
        if not self.fits:
            return np.frompyfunc(lambda *row: tuple(map(int, row)) in self.rows, len(columns), 1)(*columns)
        inside: Any = True
        places = []
        for array, values in zip(self.arrays, columns, strict=True):
            if np.asarray(values).dtype == object and array.dtype != object:
                array = array.astype(object)
            at = np.minimum(np.searchsorted(array, values), len(array) - 1)
            inside = inside & (array[at] == values)
            places.append(at)
        keys = self._keys(places)
        found = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return inside & (self.keys[found] == keys)


def _listed(values: Sequence[int]) -> NDArray[Any]:
    return np.array(values, dtype=np.int64 if min(values) >= INT64_MIN and max(values) <= INT64_MAX else object)
