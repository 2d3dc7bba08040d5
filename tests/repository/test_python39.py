"""Code that runs on a node gets along with its Python 3.9.

vermin (a check of scripts/test) finds newer syntax and library calls, but can't tell `X | Y` in an annotation, which
is never evaluated, from one that is.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_TYPES = {"None", "bool", "bytes", "dict", "float", "frozenset", "int", "list", "object", "set", "str", "tuple", "type"}


def evaluated_unions(source: str) -> list[int]:
    """Return the lines on which a union of types is evaluated at run time."""
    tree = ast.parse(source)
    annotations: set[ast.AST] = set()
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            annotation = getattr(node, field, None)
            if annotation is not None:
                annotations.update(ast.walk(annotation))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and node not in annotations
        and (_is_type(node.left) or _is_type(node.right))
    ]


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        node = node.value
    return (isinstance(node, ast.Name) and node.id in _TYPES) or (isinstance(node, ast.Constant) and node.value is None)


def test_the_finder_tells_evaluated_from_annotated() -> None:
    source = (
        "def f(a: int | None = 1 | 2) -> str | None:\n    b: int | str = a\nX = int | None\nisinstance(1, Y | str)\n"
    )
    assert evaluated_unions(source) == [3, 4]


def test_plugins_evaluate_no_union_of_types(root: Path) -> None:
    files = sorted((root / "plugins").rglob("*.py")) + sorted((root / "tests" / "testinfra").rglob("*.py"))
    assert files
    found = [f"{path.relative_to(root)}:{line}" for path in files for line in evaluated_unions(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize("room", ["module_utils", "modules"])
def test_annotations_are_not_evaluated(root: Path, room: str) -> None:
    files = [path for path in sorted((root / "plugins" / room).rglob("*.py")) if path.read_text("utf-8").strip()]
    assert files
    late = [path.name for path in files if "from __future__ import annotations\n" not in path.read_text("utf-8")]
    assert late == []
