"""Flash-Decoding: a sequence's keys dealt to several units, and a second kernel that combines them."""

from __future__ import annotations

from roofcalc.core import Limits, Plan, Shape
from roofcalc.models import variant
from roofcalc.models.cache import checked
from roofcalc.models.decode_notes import expects, intensity
from roofcalc.models.splitting import notes, packed, partial_bytes, resolve, split_kernels

SPLIT_SOURCE = "Flash-Decoding for long-context inference (PyTorch blog, 2023-10-13)"


@variant("split-kv", source=SPLIT_SOURCE, command="decode")
def split_kv(shape: Shape, limits: Limits, *, splits: int | str | None = None) -> Plan:
    """Flash-Decoding: each unit takes a chunk of the keys, a second kernel combines what they leave.

    Every unit writes its rows' unfinished O and their log-sum-exp in fp32; `combine` reads both. Without
    --splits the number is what FlashAttention-2's rule makes of this kernel's units, its 64 x 128 tile
    (at d = 128) holding all rows of a group. `expected` is for that library.
    """
    checked(shape)
    units = resolve(splits, shape, limits, packed(shape, limits))
    kernels = split_kernels(shape, units, auto=splits is None)
    said = (*intensity(shape, shape.group, kernels), *notes(shape, limits, units, kernels))
    said = (*said, *expects("PyTorch's FlashAttention-2", units.splits))
    return Plan("split-kv", shape, kernels, SPLIT_SOURCE, said, partial_bytes(kernels))
