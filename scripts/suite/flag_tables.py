"""Write the shipped tables of SGLang's flags from dumps of its argument parser.

Usage: PYTHONPATH=scripts python -m suite.flag_tables DUMP.json...

A dump is {"sglang_version", "args": [{"flags", "action", "type", "nargs", "default", "choices", "takes_value",
"bool_style"}]}. Kept are names, type, number of values, default and choices; each version becomes a module of its own
below plugins/module_utils, which `flag_tables` reads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_WIDTH = 118
_HEADER = '''# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of SGLang {version}. Written by scripts/suite/flag_tables.py; don't edit.

Rows of JSON: names, type, number of values, default, choices. The room `flag_tables` reads them.
"""

from __future__ import annotations

TABLE = r"""[
'''


def row(entry: dict[str, Any]) -> list[Any]:
    """Return one flag of a dump as [names, type, nargs, default, choices]."""
    kind = (entry["type"] or "str") if entry["takes_value"] else "flag"
    if entry["bool_style"] == "flag_with_no_prefix":
        kind = "switch"
    choices = sorted(entry["choices"], key=str) if entry["choices"] else None
    names = [flag.lstrip("-") for flag in entry["flags"] if not flag.startswith("--no-") or kind != "switch"]
    return [names, kind, entry["nargs"], entry["default"], choices]


def wrapped(values: list[Any]) -> str:
    """Return a row as JSON, broken where it is too long for a line; a newline there is white space to JSON."""
    parts = json.dumps(values).split(", ")
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 3 > _WIDTH:
            lines[-1] += ","
            lines.append(" " + part)
        else:
            lines[-1] += ", " + part
    return "\n".join(lines)


def module_text(dump: dict[str, Any]) -> str:
    """Return the module for one dump."""
    rows = sorted((row(entry) for entry in dump["args"]), key=lambda values: values[0][0])
    body = ",\n".join(wrapped(values) for values in rows)
    return _HEADER.format(version=dump["sglang_version"]) + body + '\n]"""\n'


def main(arguments: list[str]) -> int:
    """Write one module for each dump that is named; return the exit status."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    for argument in arguments:
        dump = json.loads(Path(argument).read_text(encoding="utf-8"))
        name = "flags_sglang_" + dump["sglang_version"].replace(".", "_")
        target = ROOT / "plugins" / "module_utils" / f"{name}.py"
        target.write_text(module_text(dump), encoding="utf-8")
        print(f"{target.relative_to(ROOT)}: {len(dump['args'])} flags")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
