"""The shape of an attention layer, and the one place where its mask is counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from roofcalc.numeric import Num, everywhere, maximum, minimum

Pass = Literal["fwd", "bwd", "fwd+bwd"]
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
KV_DTYPES = (*DTYPES, "int4")


class RoofcalcError(Exception):
    """Input that cannot be used. Its text is one line that names what was found and what is allowed."""


class ShapeError(RoofcalcError):
    """A size that no attention layer can have."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of one attention layer. `Shape.of` fills the defaults and checks them.

    `T` queries attend to `S` keys, aligned at the bottom right: query i sits at position
    i + S - T. Every size may be a NumPy array; `causal`, `window` and the dtypes are plain.

    A batch of unlike sequences gives their key counts in `lengths`; S is then the longest of them and
    `sequences` has one shape for each.
    """

    batch: Num
    heads: Num
    kv_heads: Num
    T: Num
    S: Num
    d: Num
    dv: Num
    causal: bool
    window: int | None
    dtype: str
    kv_dtype: str
    layers: int
    direction: Pass
    lengths: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        *,
        T: Num,
        S: Num | None = None,
        batch: Num = 1,
        heads: Num = 32,
        kv_heads: Num | None = None,
        d: Num = 128,
        dv: Num | None = None,
        causal: bool = False,
        window: int | None = None,
        dtype: str = "bf16",
        kv_dtype: str | None = None,
        layers: int = 1,
        direction: Pass = "fwd",
        lengths: tuple[int, ...] | None = None,
    ) -> Shape:
        """A checked shape: S defaults to T, kv_heads to heads, dv to d, kv_dtype to dtype.

        `lengths` stands in for S and the batch. Raises ShapeError where a size is below 1, heads is no
        multiple of kv_heads, a dtype is not known, or the batch is not the number of lengths.
        """
        if lengths is not None:
            batch, S = _ragged(lengths, batch)
        S = T if S is None else S
        kv_heads = heads if kv_heads is None else kv_heads
        dv = d if dv is None else dv
        sizes = {"batch": batch, "heads": heads, "kv-heads": kv_heads, "T": T, "S": S, "d": d, "dv": dv}
        sizes |= {"layers": layers, "window": 1 if window is None else window}
        for name, size in sizes.items():
            if not everywhere(size >= 1):
                raise ShapeError(f"--{name} is {size}; it must be at least 1")
        if not everywhere(heads % kv_heads == 0):
            raise ShapeError(f"--heads {heads} is not a multiple of --kv-heads {kv_heads}")
        kv_dtype = dtype if kv_dtype is None else kv_dtype
        for name, value, allowed in (("dtype", dtype, DTYPES), ("kv-dtype", kv_dtype, KV_DTYPES)):
            if value not in allowed:
                raise ShapeError(f"--{name} {value!r} is not known; choose from {', '.join(allowed)}")
        return cls(
            batch=batch,
            heads=heads,
            kv_heads=kv_heads,
            T=T,
            S=S,
            d=d,
            dv=dv,
            causal=causal,
            window=window,
            dtype=dtype,
            kv_dtype=kv_dtype,
            layers=layers,
            direction=direction,
            lengths=lengths,
        )

    @property
    def sequences(self) -> tuple[Shape, ...]:
        """The shapes that differ: this one, or one of batch 1 for each of `lengths`."""
        if self.lengths is None:
            return (self,)
        return tuple(replace(self, batch=1, S=length, lengths=None) for length in self.lengths)

    @property
    def group(self) -> Num:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def square(self) -> Num:
        """Scores of the full T x S rectangle, over batch and heads."""
        return self.batch * self.heads * self.T * self.S

    @property
    def behind(self) -> Num:
        """How many keys before its own position a query may see (all of them without a window)."""
        return self.T + self.S if self.window is None else minimum(self.window - 1, self.T + self.S)

    @property
    def ahead(self) -> Num:
        """How many keys after its own position a query may see (none when causal)."""
        return 0 * self.T if self.causal else self.behind

    @property
    def seeing(self) -> Num:
        """Queries of a head that see a key; a causal query that stands before the first key sees none."""
        return self.T - maximum(self.T - self.S - self.ahead, 0)

    @property
    def seen(self) -> Num:
        """Keys of a KV head that some query sees: all of them, or the last ones with a window."""
        return self.S - maximum(self.S - self.T - self.behind, 0)

    @property
    def pairs(self) -> Num:
        """Query-key pairs that the mask leaves, over batch and heads, exact.

        The query at position p sees the keys p - behind ... p + ahead that exist; the count is the
        sum over p = S - T ... S - 1 of clamp(p + ahead + 1) - clamp(p - behind), clamped to 0 ... S.
        Causal and T = S gives T (T + 1) / 2; causal with a window W gives W T - W (W - 1) / 2.
        """
        first, last = self.S - self.T, self.S - 1
        seen = _clamped_sum(last + self.ahead + 1, self.S) - _clamped_sum(first + self.ahead, self.S)
        unseen = _clamped_sum(last - self.behind, self.S) - _clamped_sum(first - self.behind - 1, self.S)
        return self.batch * self.heads * (seen - unseen)


def _ragged(lengths: tuple[int, ...], batch: Num) -> tuple[int, int]:
    """The batch and the longest sequence of `lengths`."""
    if not lengths or min(lengths) < 1:
        raise ShapeError(f"--S {','.join(map(str, lengths))}: every length must be at least 1")
    if batch not in (1, len(lengths)):
        raise ShapeError(f"--batch {batch}: --S has {len(lengths)} lengths, one sequence each; leave --batch out")
    return len(lengths), max(lengths)


def _clamped_sum(x: Num, top: Num) -> Num:
    """The sum of clamp(k, 0, top) over all integers k <= x."""
    inside = maximum(minimum(x, top), 0)
    return inside * (inside + 1) // 2 + top * maximum(x - top, 0)
