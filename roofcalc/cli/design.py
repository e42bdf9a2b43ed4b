"""``roofcalc kernel``: the user's own design, before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofcalc.cli import flow
from roofcalc.cli.app import AnswerIsNo, app
from roofcalc.cli.options import CACHE, MACHINE, RESULT, Given, argument, option, switch, takes, text
from roofcalc.core import Report, RoofcalcError

if TYPE_CHECKING:
    from roofcalc.design import Finding

DESIGN = argument("design", "The design: a YAML file.", required=False, metavar="DESIGN.yaml")
PARAMS = option(
    "param",
    list[str] | None,
    None,
    "--param",
    "-p",
    panel="Design",
    help="Set a param of the design: -p T=8192 (counts as 8k, 128K).",
    metavar="NAME=VALUE",
    show_default=False,
)
NEW = text("new", "Print a built-in variant as a design, such as attention-flash2.", "Design", "COMMAND-VARIANT")
CHECK = switch("check", "Exit 1 when a finding forbids the kernel.", "Design")
SCHEMA = switch("schema", "Print the JSON Schema of designs, for editors.", "Design")


@app.command(rich_help_panel="Design")
@takes(DESIGN, PARAMS, CHECK, NEW, SCHEMA, *MACHINE, CACHE, *RESULT)
def kernel(given: Given) -> None:
    """A kernel of your own in YAML: does it fit, what binds it.

    Start from a built-in one: roofcalc kernel --new attention-flash2 > my.yaml
    """
    flow.check_outputs(given)
    asked = [name for name in ("design", "new", "schema") if given[name]]
    if len(asked) != 1:
        raise RoofcalcError("kernel needs exactly one of: a design's YAML file, --new COMMAND-VARIANT, --schema")
    if given["schema"]:
        import json

        from roofcalc.design import schema

        flow.write(given, json.dumps(schema(), ensure_ascii=False, indent=2))
    elif given["new"]:
        flow.write(given, _built_in(given))
    else:
        _report(given)


def _report(given: Given) -> None:
    from roofcalc.design import findings, load_design
    from roofcalc.estimate import estimate

    design = load_design(given["design"], _params(given["param"] or ()))
    reports, found = [], []
    for gpu in flow.machines(given):
        report = estimate(design.plan, gpu, given["cache"] or "cold")
        reports.append(report)
        found.append(findings(design, report, gpu))
    flow.emit("kernel", given, reports, after=_lines(reports, found))
    if given["check"] and any(finding.forbids for of_gpu in found for finding in of_gpu):
        raise AnswerIsNo


def _params(given: Sequence[str]) -> dict[str, str]:
    """The params of -p by name. Raises RoofcalcError for one without a value or given twice."""
    params: dict[str, str] = {}
    for entry in given:
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not name or not equals or not value:
            raise RoofcalcError(f"-p {entry}: NAME=VALUE is wanted, such as T=8192")
        if name in params:
            raise RoofcalcError(f"-p gives {name} twice, as {params[name]} and as {value}")
        params[name] = value
    return params


def _lines(reports: Sequence[Report], found: Sequence[Sequence[Finding]]) -> str:
    """The findings as text, under a heading for each GPU: first those that forbid the kernel there."""
    lines: list[str] = []
    for report, of_gpu in zip(reports, found, strict=True):
        lines += ["", f"Findings on {report.hardware}"]
        for finding in sorted(of_gpu, key=lambda finding: not finding.forbids):
            where = f"{finding.kernel}: " if finding.kernel else ""
            if finding.forbids:
                # too little work or traffic runs, but is not the kernel that the design says
                refused = "cannot be as written" if finding.kind in ("work", "compulsory") else "cannot run"
                where = f"{refused} on {report.hardware}: {where}"
            lines.append(f"  {'✗' if finding.forbids else '·'} {where}{finding.text}")
    return "\n".join(lines) + "\n"


def _built_in(given: Given) -> str:
    """A built-in variant as a design, at the size of the examples."""
    from roofcalc.core import Shape
    from roofcalc.design import export, held
    from roofcalc.models import Command, variants
    from roofcalc.quantities import nearest

    commands: tuple[Command, ...] = ("attention", "decode")
    known = {f"{command}-{name}": variant for command in commands for name, variant in variants(command).items()}
    name = given["new"]
    if name not in known:
        raise RoofcalcError(f"--new {name!r} is no built-in variant{nearest(name, known)}")
    limits = flow.machines(given)[0].limits
    variant = known[name]
    sizes: dict[str, Any] = {"T": 8192} if variant.command == "attention" else {"T": 1, "S": 8192, "kv_heads": 8}

    plan = variant.plan(Shape.of(**sizes), limits)
    tile = held(plan)
    return export(plan, name, lambda shape: variant.plan(shape, limits, tile))
