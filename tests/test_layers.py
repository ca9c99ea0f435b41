"""No module imports from a layer above its own, at the top of the file or inside a function, or for types alone."""

from __future__ import annotations

import ast
from pathlib import Path

import kbeval
from tests.conftest import LONG, LONG_TESTS, QUICK_TESTS

PACKAGE = Path(kbeval.__file__).parent
CHILD = PACKAGE / "database" / "child"
# Lowest first. Packages of one line do not import each other, except errors and util.
LAYERS = (
    {"errors", "util"},
    {"database", "settings"},
    {"engine"},
    {"golden", "metrics"},
    {"storage"},
    {"scoring"},
    {"compare"},
    {"explore"},
    {"frames"},
    {"systems"},
    {"render"},
    {"report"},
    {"live"},
    {"demo", "workspace"},
    {"cli"},
    {"__main__"},
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """The modules of kbeval that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            # The process that opens databases knows its package by another name, and imports nothing else of kbeval.
            assert node.level == 0 or path.parent == CHILD, f"{path}: imports are absolute"
            module = node.module or ""
            # `from kbeval import x` may be a module, or the version.
            found |= {f"kbeval.{alias.name}" for alias in node.names} if module == "kbeval" else {module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("kbeval.") and name != "kbeval.__version__"}


def test_no_module_imports_upwards() -> None:
    upwards = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if name == "__init__":
            continue
        for module in sorted(imports(path)):
            other = module.split(".")[1]
            same_level = HEIGHT[other] == HEIGHT[name] != 0 and other != name
            if HEIGHT[other] > HEIGHT[name] or same_level:
                upwards.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert upwards == []


def test_the_process_that_opens_databases_needs_nothing_else() -> None:
    assert set().union(*map(imports, CHILD.glob("*.py"))) == set()


def test_every_package_has_its_layer() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert found - {"__init__"} == HEIGHT.keys()


def test_make_check_names_modules_and_tests_that_exist() -> None:
    """Otherwise a test that was renamed would quietly be part of it, or no longer be."""
    tests = Path(__file__).parent
    for package, modules in LONG.items():
        for module in modules.split():
            folder = tests if package == "tests" else tests / package
            assert (folder / f"test_{module}.py").is_file(), f"{package}/test_{module}.py"
    for place, names in (*LONG_TESTS.items(), *QUICK_TESTS.items()):
        package, module = place.split(".")
        text = (tests / package / f"test_{module}.py").read_text(encoding="utf-8")
        for name in names.split():
            assert f"def test_{name}(" in text, f"{place}: {name}"
