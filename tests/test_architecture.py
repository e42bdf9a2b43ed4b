"""Who may import whom, what start-up loads, and what the built packages hold."""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "roofcalc"

# module or folder of the package -> what of the package it may import, what from outside beside the standard library
MAY_IMPORT: dict[str, tuple[set[str], set[str]]] = {
    "numeric": (set(), {"numpy"}),
    "shape": ({"numeric"}, set()),
    "core": ({"numeric", "shape"}, set()),
    "splits": ({"numeric"}, set()),
    "models": ({"core", "numeric", "splits", "models"}, set()),
    "quantities": ({"core"}, {"quantiphy"}),
    "yamlfile": ({"core", "quantities"}, {"yaml", "pydantic"}),
    "blocks": ({"core", "quantities"}, {"pydantic"}),
    "constants": ({"core", "blocks"}, {"pydantic"}),
    "hardware": (
        {"core", "quantities", "yamlfile", "blocks", "constants"},
        {"yaml", "pydantic", "quantiphy"},
    ),
    "hf": ({"core", "quantities", "hf"}, {"yaml", "pydantic", "quantiphy"}),
    "design": (
        {"core", "numeric", "quantities", "yamlfile", "design"},
        {"yaml", "pydantic", "quantiphy", "simpleeval"},
    ),
    "calibration": ({"core", "numeric", "splits", "calibration"}, set()),
    "estimate": ({"core", "numeric", "calibration"}, set()),
    "simulate": ({"core", "numeric", "models", "estimate", "simulate"}, {"numpy"}),
    "render": ({"core", "numeric", "render"}, {"rich", "matplotlib", "numpy"}),
}


def imports(path: Path) -> set[str]:
    """The modules that a file imports, those for type checking alone left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""}
            if node.module == "roofcalc":
                found |= {f"roofcalc.{alias.name}" for alias in node.names if alias.name != "__version__"}
    return found - {"roofcalc"}


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if part(path) in MAY_IMPORT]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_the_way_the_design_says(path: Path) -> None:
    ours, outside = MAY_IMPORT[part(path)]
    for module in imports(path):
        top, _, rest = module.partition(".")
        if top == "roofcalc":
            assert rest.split(".")[0] in ours, f"{path.name} imports {module}"
        else:
            assert top in outside or top in sys.stdlib_module_names, f"{path.name} imports {module}"


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_file_is_above_300_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def loaded(*arguments: str) -> set[str]:
    """The top-level modules that are loaded once `roofcalc ARGUMENTS` is done."""
    code = (
        "import sys\n"
        "from roofcalc.cli import main\n"
        "try:\n"
        f"    main({list(arguments)!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print(' '.join({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stderr.split())


def test_help_loads_no_heavy_module() -> None:
    assert not loaded("--help") & {"yaml", "numpy", "matplotlib", "pydantic", "torch"}


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_a_table_loads_neither_numpy_nor_matplotlib(form: str) -> None:
    found = loaded("attention", "--T", "8192", "--format", form)
    assert "yaml" in found
    assert not found & {"numpy", "matplotlib", "torch", "simpleeval"}


def test_importing_the_command_line_loads_none_of_the_heavy_libraries() -> None:
    code = "import sys, roofcalc.cli; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(done.stdout.split()) & {"matplotlib", "numpy", "torch", "yaml"}


def test_wheel_and_sdist_hold_the_hardware_files(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    wheel, sdist = next(tmp_path.glob("*.whl")), next(tmp_path.glob("*.tar.gz"))
    stems = {path.name for path in (ROOT / "hardware").glob("*.yaml")}
    in_wheel = zipfile.ZipFile(wheel).namelist()
    assert stems == {Path(name).name for name in in_wheel if name.startswith("roofcalc/_hardware/")}
    with tarfile.open(sdist) as archive:
        assert stems == {
            Path(name).name for name in archive.getnames() if "/hardware/" in name and "." in name[-5:]
        }

    # what was packed is what runs: the wheel alone, away from the checkout
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    code = "import roofcalc.hardware as h; print(h.__file__, *h.names())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=unpacked,
        env=_bare(unpacked),
    )
    where, *names = done.stdout.split()
    assert Path(where).is_relative_to(unpacked)
    assert {f"{name}.yaml" for name in names} == stems


def _bare(folder: Path) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
