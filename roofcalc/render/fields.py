"""What all renderers share: the fields of a report as plain values, the kernels' numbers, short labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofcalc.core import Access, Report, Row, Shape
from roofcalc.numeric import Num
from roofcalc.render import units

ROOFS = {"hbm": "HBM", "l2": "L2", "smem": "smem", "tensor": "tensor", "vector": "vector", "exp": "exp"}
"""The resources in the order in which they are listed, and what a person calls them."""

_SHAPE = (
    "batch",
    "heads",
    "kv_heads",
    "T",
    "S",
    "d",
    "dv",
    "causal",
    "window",
    "dtype",
    "kv_dtype",
    "layers",
)
_ROW = (
    "flops",
    "executed_flops",
    "bytes",
    "intensity",
    "ridge",
    "bound",
    "roof",
    "time",
    "expected",
    "launches",
)
_FILL = ("units", "waves", "sm_use")


def plain(value: Any) -> Any:
    """A NumPy scalar or array as Python numbers; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def shape_fields(report: Report) -> dict[str, Any]:
    """The sizes by their JSON names: those of the attention layer, or a design's params."""
    shape: Any = report.shape
    if isinstance(shape, Shape):
        fields = {name: plain(getattr(shape, name)) for name in _SHAPE}
        fields |= {"S": list(shape.lengths)} if shape.lengths else {}
        return {**fields, "pass": shape.direction}
    return {name: plain(value) for name, value in shape.params.items()}


def row_fields(row: Row) -> dict[str, Any]:
    """A kernel's fields by their JSON names, without its ledger."""
    fields = {name: plain(getattr(row, name)) for name in (*_ROW, "share")}
    fields |= {} if row.group is None else {"group": row.group}
    fields["roofs"] = {name: plain(row.roofs.get(name)) for name in ROOFS}
    return fields | {name: plain(getattr(row, name)) for name in _FILL}


def moved(row: Row, access: Access) -> Num:
    """Bytes of a ledger line over all launches of its kernel."""
    return access.bytes * row.launches


def over_launches(row: Row, why: str) -> str:
    """The formula of one launch, with the number of launches where there are several."""
    launches = plain(row.launches)
    return why if launches == 1 else f"{launches} launches × {why}"


Key = tuple[str, str, int]


def kernel_keys(report: Report) -> list[Key]:
    """One key per kernel: variant, name, and which of the kernels of that name it is."""
    names = [row.name for row in report.kernels]
    return [(report.variant, name, names[:i].count(name)) for i, name in enumerate(names)]


def numbers(reports: Sequence[Report]) -> dict[Key, int]:
    """The number of every kernel, counted over all variants: the same in the table and in the plot."""
    variants = dict.fromkeys(report.variant for report in reports)
    keys = dict.fromkeys(
        key
        for name in variants
        for report in reports
        if report.variant == name
        for key in kernel_keys(report)
    )
    return {key: number for number, key in enumerate(keys, 1)}


def roof_name(row: Row) -> str:
    """What binds a kernel, as a person calls it; nothing for a total."""
    if row.bound in ("latency", "host"):
        return str(row.bound)
    return ROOFS.get(str(row.roof), "")


def gpu_line(report: Report) -> str:
    """The GPU with the peaks that make its roofline."""
    peaks = report.peaks
    dtype = report.shape.dtype if "tensor" in peaks else "fp32"
    top = units.si(peaks.get("tensor", peaks["vector"]), op_rate(dtype), trim=True)
    bandwidth = units.si(peaks["hbm"], "B/s", trim=True)
    return f"{report.hardware} · {top} {dtype} · {bandwidth} · ridge {units.significant(peaks['ridge'])}"


def op_rate(dtype: str) -> str:
    """The unit of a rate: integer operations are no FLOP."""
    return "op/s" if dtype.startswith("int") else "FLOP/s"


def shape_line(report: Report) -> str:
    """The sizes that a reader needs to repeat the run; those that follow from others are left out."""
    shape: Any = report.shape
    if not isinstance(shape, Shape):
        return " · ".join([*(f"{name}={value}" for name, value in shape_fields(report).items()), shape.dtype])
    window = [f"window {shape.window}"] if shape.window is not None else []
    keys = ",".join(map(str, shape.lengths)) if shape.lengths else shape.S
    return " · ".join(
        [
            f"batch {shape.batch}",
            f"{shape.heads} {'head' if shape.heads == 1 else 'heads'}",
            *([] if shape.kv_heads == shape.heads else [f"{shape.kv_heads} KV head{'s' * (shape.kv_heads != 1)}"]),
            f"T={shape.T}",
            *([] if shape.S == shape.T and not shape.lengths else [f"S={keys}"]),
            f"d={shape.d}",
            *([] if shape.dv == shape.d else [f"dv={shape.dv}"]),
            shape.dtype,
            *([] if shape.kv_dtype == shape.dtype else [f"KV {shape.kv_dtype}"]),
            " ".join((["causal"] if shape.causal else []) + window) or "no mask",
            *([] if shape.layers == 1 else [f"{shape.layers} layers"]),
            *([] if shape.direction == "fwd" else [shape.direction]),
        ]
    )


def effective(row: Row) -> str:
    """What the expected time makes of the resource that binds: bytes of HBM or FLOP in a second."""
    if row.expected is None or row.roof is None or not row.expected:
        return ""
    if row.roof in ("hbm", "l2", "smem"):
        return units.si(row.bytes / row.expected, "B/s") if row.bytes else ""
    return units.si(row.flops / row.expected, "FLOP/s")
