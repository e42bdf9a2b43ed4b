"""Reports made by hand for the tests of the renderers, with the sizes of the interface's first table."""

from __future__ import annotations

from typing import Any

from roofcalc.core import Access, Report, Row, Shape, Work
from roofcalc.render import FORMATS

# T = 8192, 32 heads, d = 128, bf16, on an H100 (989.4 TFLOP/s, 3.35 TB/s): the sizes of naive attention.
# S and P hold 32 * 8192**2 = 2,147,483,648 numbers, 4,294,967,296 bytes; Q, K, V, O 67,108,864 bytes each.
SQUARE, SMALL = 4_294_967_296, 67_108_864
PEAKS = {
    "tensor": 989.4e12,
    "vector": 66.9e12,
    "exp": 3.865e12,
    "hbm": 3.35e12,
    "l2": 9.4e12,
    "smem": 30.9e12,
    "ridge": 295.34,
}


def line(tensor: str, size: int, mode: Any, why: str, tier: Any = "hbm") -> Access:
    return Access(tensor, size // 2, "bf16", tier, mode, why)


def kernel(name: str, flops: int, ledger: tuple[Access, ...], roofs: dict[str, float], **more: Any) -> Row:
    moved = sum(access.bytes for access in ledger if access.tier == "hbm")
    roof = max(roofs, key=lambda key: roofs[key])
    return Row(
        name=name,
        flops=flops,
        executed_flops=more.pop("executed_flops", flops),
        bytes=moved,
        intensity=flops / moved,
        time=roofs[roof],
        launches=more.pop("launches", 1),
        bound="memory" if roof in ("hbm", "l2", "smem") else "compute",
        roof=roof,
        roofs=roofs,
        ledger=ledger,
        **more,
    )


SCORES = kernel(
    "scores",
    549_755_813_888,
    (
        line("Q", SMALL, "read", "batch·heads·T·d"),
        line("K", SMALL, "read", "batch·kv_heads·S·d"),
        line("S", SQUARE, "write", "batch·heads·T·S"),
    ),
    {"hbm": 1.3221e-3, "l2": 0.4712e-3, "tensor": 0.5556e-3},
    ridge=295.34,
    share=0.254,
    work=(Work("tensor", 549_755_813_888, "2·pairs·d", "bf16"),),
)
SOFTMAX = kernel(
    "softmax",
    10_737_418_240,
    (line("S", SQUARE, "read", "batch·heads·T·S"), line("P", SQUARE, "write", "batch·heads·T·S")),
    {"hbm": 2.5642e-3, "vector": 0.1284e-3, "exp": 0.5556e-3},
    share=0.492,
)
PV = kernel(
    "pv",
    549_755_813_888,
    (
        line("P", SQUARE, "read", "batch·heads·T·S"),
        line("V", SMALL, "read", "batch·kv_heads·S·dv"),
        line("O", SMALL, "write", "batch·heads·T·dv"),
    ),
    {"hbm": 1.3221e-3, "l2": 0.4712e-3, "tensor": 0.5556e-3},
    share=0.254,
)
FLASH = kernel(
    "attention",
    1_110_249_046_016,
    (
        *(line(tensor, SMALL, "read", "batch·heads·T·d") for tensor in "QKV"),
        line("O", SMALL, "write", "batch·heads·T·dv"),
    ),
    {"hbm": 0.0801e-3, "tensor": 1.1113e-3, "exp": 0.5556e-3},
    share=1.0,
)
SHAPE = Shape.of(T=8192)


def make(variant: str, *kernels: Row, **more: Any) -> Report:
    flops, moved = sum(row.flops for row in kernels), sum(row.bytes for row in kernels)
    total = Row(
        name="total",
        flops=flops,
        executed_flops=sum(row.executed_flops for row in kernels),
        bytes=moved,
        intensity=flops / moved,
        time=sum(row.time for row in kernels),
        launches=sum(row.launches for row in kernels),
    )
    standard = {
        "gpu": "h100",
        "hardware": "H100 SXM5 80 GB",
        "variant": variant,
        "source": "a paper",
        "shape": SHAPE,
        "kernels": kernels,
        "total": total,
        "memory": 0,
        "peaks": PEAKS,
    }
    return Report(**{**standard, **more})


NAIVE = make("naive", SCORES, SOFTMAX, PV, memory=2 * SQUARE)
FLASH3 = make("flash3", FLASH)
BOTH = [NAIVE, FLASH3]


def table(reports: list[Report], **more: Any) -> str:
    return FORMATS["table"](reports, command="attention", **more)
