"""What a report says in words: the remark beside a variant and the sentences that close the table."""

from __future__ import annotations

from collections.abc import Sequence

from roofcalc.core import Report, Row
from roofcalc.numeric import Num
from roofcalc.render import units
from roofcalc.render.fields import ROOFS, moved, roof_name

_SCORES = {"S", "P"}
_SQUARE = _SCORES | {"dS", "dP", "D", "M"}
_CACHE = {"K", "V", "latent"}
_NOTICEABLE = 0.25


def remark(report: Report) -> str:
    """The extra device memory that a variant holds; nothing where it needs none."""
    if not report.memory:
        return ""
    what = "of scores" if traffic(report, _SCORES) else "of intermediates"
    return f"{units.size(report.memory)} {what} in memory"


def speed_up(report: Report, reports: Sequence[Report]) -> Num | None:
    """How many times faster than naive on the same GPU at the same sizes, by the roofline."""
    if report.variant == "naive":
        return None
    same = [r for r in reports if (r.variant, r.gpu, r.shape) == ("naive", report.gpu, report.shape)]
    return same[0].total.time / report.total.time if same and report.total.time else None


def traffic(report: Report, tensors: set[str]) -> Num:
    """Bytes of HBM that a report moves for `tensors`."""
    lines = [(row, access) for row in report.kernels for access in row.ledger if access.tier == "hbm"]
    return sum((moved(row, access) for row, access in lines if access.tensor in tensors), 0)


def removable(report: Report) -> Num:
    """Bytes that fusing removes: score matrices between kernels, with the masks on them."""
    between = len(report.kernels) > 1 and traffic(report, _SCORES)
    return traffic(report, _SQUARE) if between else 0


def binding(report: Report) -> Row | None:
    """The longest of the kernels under the roof that takes most of the time."""
    by_roof: dict[str, Num] = {}
    for row in report.kernels:
        by_roof[roof_name(row)] = by_roof.get(roof_name(row), 0) + row.time
    if not by_roof:
        return None
    most = max(by_roof, key=lambda name: float(by_roof[name]))
    return max((row for row in report.kernels if roof_name(row) == most), key=lambda row: float(row.time))


def _share_of_other_roofs(report: Report, binds: str) -> str:
    """The other roofs that come near, as shares of the one that binds its kernels: what binds next."""
    rows = [row for row in report.kernels if row.roof == binds]
    times = {
        name: sum((row.roofs.get(name) or 0 for row in rows), 0)
        for name in ROOFS
        if any(row.roofs.get(name) for row in rows)
    }
    top = times.pop(binds)
    near = sorted(
        (name for name in times if times[name] >= _NOTICEABLE * top), key=lambda n: -float(times[n])
    )
    said = [f"{ROOFS[name]} is at {units.percent(times[name] / top)}" for name in near[:2]]
    if not said:
        return ""
    return f"; {said[0]} of it" + (f", {said[1].replace(' is at', ' at')}" if len(said) > 1 else "")


def _few_sms(row: Row) -> str:
    if row.sm_use is None or row.waves is None or row.waves >= 1 or row.sm_use >= 0.9:
        return ""
    return f"; its {units.count(row.units)} thread blocks reach only {units.percent(row.sm_use)} of the SMs"


def _main_traffic(report: Report) -> str:
    """The tensors that make most of a memory-bound variant's bytes, and what makes them fewer."""
    if not report.total.bytes:
        return ""
    share = traffic(report, _CACHE) / report.total.bytes
    if share < 0.5:
        return ""
    names = [n for n in ("K", "V", "latent") if traffic(report, {n})]
    return (
        f"; {' and '.join(names)} {'are' if len(names) > 1 else 'is'} {units.percent(share)} of its bytes, "
        "which fewer KV heads or a smaller KV dtype cut"
    )


def _predicate(report: Report) -> str:
    """What binds a variant, as the end of a sentence about it; empty where nothing does."""
    row = binding(report)
    if row is None or row.bound is None:
        return ""
    if row.bound == "latency":
        return f"bound by latency: too few bytes are on their way at once{_few_sms(row)}"
    if row.bound == "host":
        return "bound by the host"
    if row.roof == "hbm":
        return f"bound by memory bandwidth{_main_traffic(report)}{_few_sms(row)}"
    resource = f"{ROOFS[row.roof]} bandwidth" if row.bound == "memory" else f"the {ROOFS[row.roof]} pipe"
    return f"bound by {resource}{_share_of_other_roofs(report, row.roof)}{_few_sms(row)}"


def _score_bound(report: Report) -> bool:
    """Whether memory binds a variant and score matrices are at least half of what it moves."""
    row = binding(report)
    return row is not None and row.roof == "hbm" and bool(2 * removable(report) >= report.total.bytes > 0)


def closing(reports: Sequence[Report]) -> list[str]:
    """Which roof binds each variant and what would help; GPUs and variants that agree share a sentence."""
    removed: dict[tuple[str, str], list[str]] = {}
    shared: dict[str, dict[str, list[str]]] = {}
    for report in reports:
        if _score_bound(report):
            removed.setdefault((report.variant, units.size(removable(report))), []).append(report.gpu)
        elif predicate := _predicate(report):
            shared.setdefault(predicate, {}).setdefault(report.variant, []).append(report.gpu)
    found = []
    if removed:
        subjects = [_subject(variant, on, reports) for (variant, _), on in removed.items()]
        saved = _join([size for _, size in removed])
        found = [f"Memory traffic for the score matrix binds {_join(subjects)}; fusing removes {saved}."]
    for predicate, variants in shared.items():
        subjects = [_subject(variant, on, reports) for variant, on in variants.items()]
        found.append(f"{_join(subjects)} {'is' if len(subjects) == 1 else 'are'} {predicate}.")
    return found


def _subject(variant: str, on: Sequence[str], reports: Sequence[Report]) -> str:
    """The variant's name, with its GPU where another GPU of the table tells another story of it."""
    every = {report.gpu for report in reports if report.variant == variant}
    return variant if set(on) == every else f"{variant} on {_join(list(dict.fromkeys(on)))}"


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def notes(reports: Sequence[Report]) -> list[str]:
    """The reports' notes, each once, with the variants and GPUs that it is about where not all."""
    told: dict[str, list[Report]] = {}
    for report in reports:
        for note in report.notes:
            told.setdefault(note, []).append(report)
    return [_about(of, reports) + note for note, of in told.items()]


def _about(of: Sequence[Report], reports: Sequence[Report]) -> str:
    names = []
    for field in ("variant", "gpu"):
        every = {getattr(report, field) for report in reports}
        some = dict.fromkeys(getattr(report, field) for report in of)
        names += [] if set(some) == every else [_join(list(some))]
    return f"[{' on '.join(names)}] " if names else ""
