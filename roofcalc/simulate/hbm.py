"""The instrument: a slow memory whose every read and write is counted.

After the HBM class of the reading on IO complexity: what crosses between slow and fast memory is
recorded where it crosses, so a count says what an algorithm did and not what a formula expects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from roofcalc.core import Mode

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = tuple[int | slice | Array, ...]


class HBM:
    """Named arrays that only `read` and `write` reach; both count the elements that move.

    `arrays` are copied in and out, so no kernel can hold a view of this memory. Placing the inputs
    here is not counted: they are there before the first kernel starts.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.__arrays = {name: np.array(array) for name, array in arrays.items()}
        self.__moved: Counter[tuple[str, Mode]] = Counter()

    def allocate(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Room for a new array. A float array holds NaN until written, so that reading it early shows."""
        if name in self.__arrays:
            raise ValueError(f"the memory already holds {name!r}")
        dtype = np.dtype(dtype)
        self.__arrays[name] = np.full(shape, np.nan if dtype.kind == "f" else 0, dtype)

    def read(self, name: str, index: Index) -> Array:
        """A copy of ``array[index]``; its size is added to what was read of `name`."""
        value = np.array(self.__arrays[name][index])
        self.__moved[name, "read"] += value.size
        return value

    def write(self, name: str, index: Index, value: Array) -> None:
        """Store `value` at ``array[index]``; its shape must be that of the place, nothing is broadcast."""
        place = self.__arrays[name][index]
        if np.shape(value) != np.shape(place):
            raise ValueError(f"{name} takes a shape of {np.shape(place)} here, not {np.shape(value)}")
        self.__arrays[name][index] = value
        self.__moved[name, "write"] += np.size(value)

    @property
    def moved(self) -> dict[tuple[str, Mode], int]:
        """Elements moved so far, by array and direction."""
        return dict(self.__moved)


def blocks(size: int, step: int) -> Iterator[slice]:
    """Consecutive slices of `step` that cover `size`; the last one ends at `size`."""
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def parts(whole: slice, step: int) -> Iterator[slice]:
    """Consecutive slices of `step` that cover a slice."""
    for part in blocks(whole.stop - whole.start, step):
        yield slice(whole.start + part.start, whole.start + part.stop)
