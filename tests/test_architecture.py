"""The house rules that a reader relies on: who imports whom, how long a thing may get, what is never done.

Every rule lists all of its offenders by name, so one run shows what is left to mend.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGES = ("sharding", "scoring", "aggregate")
PACKAGES = ("schemas", *STAGES)
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

# Which packages may import a library; libraries that are not listed are free for all.
OWNERS = {
    "dask": {"sharding"},
    "distributed": {"sharding"},
    "torch": {"scoring"},
    "transformers": {"scoring"},
    "tokenizers": {"scoring"},
    "safetensors": {"scoring"},
    "gguf": {"scoring"},
    "polars": {"sharding", "aggregate"},
    "jinja2": {"aggregate"},
    "pandas": set(),
    "requests": set(),
    "pickle": set(),
}
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "tools", "base", "core"}
READS_THE_ENVIRONMENT = {"schemas/settings.py", "scoring/assignment.py"}
MOST_LINES = 300
MOST_FUNCTION_LINES = 50
MOST_PARAMETERS = 5
MOST_POSITIONAL = 2

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """A module's path below the repository."""
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


IMPORTING = ("import_module", "__import__", "optional_library")


def imports_of(path: Path) -> Iterator[str]:
    """Every module name that a file imports, at any depth, also by ``import_module``."""
    package = path.relative_to(ROOT).parts[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield package if node.level else node.module or ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__", "optional_library")
        ):
            yield from (
                item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)
            )


def functions() -> Iterator[tuple[str, Function]]:
    """Every function of the four packages, with where it stands."""
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, Function):
                yield f"{name_of(path)}:{node.lineno} {node.name}", node


def calls(*names: str) -> list[str]:
    """Where any of these is called or read."""
    return [
        f"{name_of(path)}:{node.lineno} {ast.unparse(node)}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in names
    ]


def test_there_is_something_to_check() -> None:
    """The rules below look at real files."""
    assert len(MODULES) > 10
    assert len(list(functions())) > 50


def test_stages_import_only_the_contract() -> None:
    """A stage knows the contract and itself; the contract knows no stage."""
    offenders = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        for name in imports_of(path)
        if name.split(".")[0] in {*STAGES, "tests", "benchmarks"} - {path.relative_to(ROOT).parts[0]}
    ]

    assert offenders == []


def test_libraries_stay_with_their_owners() -> None:
    """Only sharding knows dask, only scoring torch and its family, only sharding and aggregate polars."""
    offenders = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        for name in imports_of(path)
        if path.relative_to(ROOT).parts[0] not in OWNERS.get(name.split(".")[0], set(PACKAGES))
    ]

    assert offenders == []


def test_only_declared_libraries_are_imported() -> None:
    """Whatever is imported is in the standard library, in this repository, or in the project's dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]
    declared = {item.split(">")[0].split("[")[0].replace("-", "_").lower() for item in requirements}
    known = declared | set(sys.stdlib_module_names) | set(PACKAGES)

    offenders = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        for name in imports_of(path)
        if name.split(".")[0].lower() not in known
    ]

    assert offenders == []


def test_an_init_holds_a_docstring_only() -> None:
    """Importing a package runs nothing."""
    offenders = [
        name_of(path)
        for path in MODULES
        if path.name == "__init__.py" and [type(node) for node in tree_of(path).body] != [ast.Expr]
    ]

    assert offenders == []


def test_every_module_says_its_idea() -> None:
    """Each file opens with a docstring."""
    assert [name_of(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def test_names_say_a_job() -> None:
    """No module is a drawer for whatever fits nowhere else."""
    assert [name_of(path) for path in MODULES if path.stem in VAGUE_NAMES or path.parent.name in VAGUE_NAMES] == []


def test_modules_are_short() -> None:
    """A module that passes the limit has two jobs."""
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_functions_are_short() -> None:
    """A function fits one screen, its docstring not counted."""
    lengths = {}
    for name, node in functions():
        first = node.body[0]
        described = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        docstring = (first.end_lineno or 0) - first.lineno + 1 if described else 0
        lengths[name] = (node.end_lineno or 0) - node.lineno + 1 - docstring

    assert {name: length for name, length in lengths.items() if length > MOST_FUNCTION_LINES} == {}


def test_functions_take_few_parameters() -> None:
    """At most five parameters, or names at every call for all but the first two; click names all of its own."""
    offenders = {}
    for name, node in functions():
        taken = [item.arg for item in (*node.args.posonlyargs, *node.args.args) if item.arg not in ("self", "cls")]
        is_command = any(".command(" in ast.unparse(item) for item in node.decorator_list)
        total = len(taken) + len(node.args.kwonlyargs)
        if total > MOST_PARAMETERS and len(taken) > MOST_POSITIONAL and not is_command:
            offenders[name] = total

    assert offenders == {}


def test_no_bare_except() -> None:
    """Whoever catches says what; a bare ``except`` would catch a stop signal too."""
    offenders = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]

    assert offenders == []


def test_no_assert_checks_data() -> None:
    """Asserts vanish under ``-O`` and quote what they compare, so the packages have none."""
    offenders = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Assert)
    ]

    assert offenders == []


def test_nothing_is_printed_past_the_console() -> None:
    """Results and messages pass through ``schemas.console``, which knows stdout from stderr."""
    assert calls("print", "pprint", "sys.stdout.write", "sys.stderr.write") == []


def test_nothing_is_evaluated_or_unpickled() -> None:
    """No input can become code; running the empty string, as ``schemas.console`` does, runs nothing."""
    empty = {
        f"{name_of(path)}:{node.lineno} exec"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and [ast.unparse(part) for part in node.args] == ["''"]
    }

    found = calls("eval", "exec", "pickle.load", "pickle.loads", "marshal.loads", "yaml.load", "torch.load")

    assert set(found) - empty == set()


def test_the_environment_is_read_in_two_places() -> None:
    """Settings and the ranks' assignment; handing a default to a library is no reading."""
    written = {place.replace(".setdefault", "") for place in calls("os.environ.setdefault")}
    offenders = [
        place
        for place in calls("os.environ", "os.getenv", "os.environb", "environ", "getenv")
        if place.split(":")[0] not in READS_THE_ENVIRONMENT and place not in written
    ]

    assert offenders == []


def test_nothing_is_downloaded_or_run_from_a_model() -> None:
    """No file asks for remote code, and every ``from_pretrained`` is told to stay local."""
    offenders = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call):
                continue
            keywords = {item.arg: ast.unparse(item.value) for item in node.keywords}
            if keywords.get("trust_remote_code", "False") != "False":
                offenders.append(f"{name_of(path)}:{node.lineno} trusts remote code")
            local = keywords.get("local_files_only", "True" if None in keywords else "False")
            if ast.unparse(node.func).endswith(".from_pretrained") and local != "True":
                offenders.append(f"{name_of(path)}:{node.lineno} may download")

    assert offenders == []
