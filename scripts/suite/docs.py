"""Documentation that is written from the code: docs/findings.md and the variable tables of the roles' READMEs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.headroom.serving.plugins.module_utils.findings import CATALOGUE, FindingKind

BEGIN = "<!-- variables: written by scripts/generate from meta/argument_specs.yml -->"
END = "<!-- end of variables -->"


class DocsError(Exception):
    """A page can't be written; the text is one line for people."""


@dataclass(frozen=True)
class Row:
    """One variable, or one key of a nested one under its dotted path."""

    path: str
    type: str
    default: str
    text: str


def findings_page(catalogue: Mapping[str, FindingKind]) -> str:
    """Return docs/findings.md for a catalogue, one section for each first part of the ids."""
    lines = [
        "# Findings",
        "",
        "<!-- Written by scripts/generate from plugins/module_utils/findings.py. -->",
        "",
        "What a check can say about a node, an instance or a start. The ids stay the same from release to release, so",
        "match on them. `refuse` ends the play before anything is changed; `warn` is shown and the play goes on.",
    ]
    for area in dict.fromkeys(kind_id.split(".")[0] for kind_id in catalogue):
        lines += ["", f"## {area}", "", "| id | verdict | meaning |", "| --- | --- | --- |"]
        for kind in catalogue.values():
            if kind.id.split(".")[0] == area:
                lines.append(f"| `{kind.id}` | {kind.verdict} | **{_cell(kind.title)}.** {_cell(kind.text)} |")
    return "\n".join(lines) + "\n"


def variables(spec: Mapping[str, Any]) -> str:
    """Return the Markdown for the entry points of a role's argument_specs (the mapping below `argument_specs`)."""
    parts = []
    for entry_point, content in spec.items():
        options = content.get("options", {})
        if entry_point != "main":
            summary = _cell(_sentences(content.get("short_description", ""))).rstrip(".")
            parts.append(f"With `tasks_from: {entry_point}`: {summary}.")
            if options and options == spec["main"].get("options"):
                parts += ["Takes the same variables.", ""]
                continue
            parts.append("")
        rows = list(_rows(options, ""))
        if not rows:
            parts += ["No variables.", ""]
            continue
        parts += ["| variable | type | default | meaning |", "| --- | --- | --- | --- |"]
        parts += [f"| `{_cell(row.path)}` | {row.type} | {row.default} | {row.text} |" for row in rows]
        parts.append("")
    return "\n".join(parts).rstrip("\n")


def role_page(readme: str, spec: Mapping[str, Any], name: str) -> str:
    """Return a role's README with the table between its markers renewed.

    Raises:
        DocsError: If the markers are not there exactly once, in order.
    """
    head, begin, rest = readme.partition(BEGIN)
    head, begin, rest = readme.partition(BEGIN)
    _old, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in tail or END in tail:
        raise DocsError(f"{name} needs exactly one line '{BEGIN}' and, after it, one line '{END}'")
    return f"{head}{BEGIN}\n\n{variables(spec)}\n\n{END}{tail}"


def pages(root: Path) -> dict[Path, str]:
    """Return every generated page, relative to the repository, with the text it must have.

    Raises:
        DocsError: If a role lacks its README, its specs or its markers.
    """
    wanted = {Path("docs/findings.md"): findings_page(CATALOGUE)}
    for role in sorted(path for path in (root / "roles").glob("*") if path.is_dir()):
        readme, specs = role / "README.md", role / "meta" / "argument_specs.yml"
        for needed in (readme, specs):
            if not needed.is_file():
                raise DocsError(f"{needed.relative_to(root)} is missing: each role has a README and argument specs")
        spec = yaml.safe_load(specs.read_text(encoding="utf-8"))["argument_specs"]
        name = readme.relative_to(root)
        wanted[name] = role_page(readme.read_text(encoding="utf-8"), spec, str(name))
    return wanted


def stale(root: Path) -> list[str]:
    """Return the generated pages whose text is not what the code says, without writing anything."""
    return [str(name) for name, text in pages(root).items() if not _has(root / name, text)]


def renew(root: Path) -> list[str]:
    """Write the pages that are stale and return their names."""
    wanted = pages(root)
    changed = [name for name, text in wanted.items() if not _has(root / name, text)]
    for name in changed:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(wanted[name], encoding="utf-8")
    return [str(name) for name in changed]


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _rows(options: Mapping[str, Any], prefix: str) -> Iterator[Row]:
    for name, option in options.items():
        path = f"{prefix}{name}"
        kind = option.get("type", "str")
        text = _sentences(option.get("description", ""))
        if option.get("choices"):
            text += " One of " + ", ".join(f"`{choice}`" for choice in option["choices"]) + "."
        shown = f"{kind} of {option['elements']}" if option.get("elements") else kind
        yield Row(path, shown, _default(option), _cell(text))
        yield from _rows(option.get("options", {}), f"{path}[]." if kind == "list" else f"{path}.")


def _default(option: Mapping[str, Any]) -> str:
    if option.get("required"):
        return "required"
    value = option.get("default")
    if value is None:
        return ""
    text = value if isinstance(value, str) and value else json.dumps(value)
    return f"`{_cell(text)}`"


def _sentences(description: str | list[str]) -> str:
    return description if isinstance(description, str) else " ".join(description)


def _cell(text: str) -> str:
    """Return text that stays within one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")
