# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on the node, as root: print where the keys of a release can be read by others. Never prints a key.

Arguments: the release's directory, the unit, where to look: journal, unit or processes. The keys are read here, so
that no command line carries them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The newest entries of a busy server's journal that are read, of the unit and of all units each.
ENTRIES = 100000

directory, unit, where = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
content = json.loads((directory / "credentials.yaml").read_text(encoding="utf-8"))
keys = [str(key).encode() for key in content.values() if key]


def holds_key(data: bytes) -> bool:
    """Whether a key is part of the data."""
    return any(key in data for key in keys)


def journal() -> Iterator[str]:
    """Yield the places of the journal, with all fields of its entries: _CMDLINE tells a sender's arguments."""
    for label, match in ((f"the journal of {unit}", [f"--unit={unit}"]), ("the whole journal", [])):
        command = ["journalctl", "--quiet", "--output=export", f"--lines={ENTRIES}", *match]
        hits: dict[str, int] = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if holds_key(line):
                    name, equals, _value = line.partition(b"=")
                    # Text of several lines stands below its name, without an equals sign.
                    field = name.decode() if equals and name.replace(b"_", b"").isalnum() and name.isupper() else "text"
                    hits[field] = hits.get(field, 0) + 1
        for field, count in sorted(hits.items()):
            yield f"{label}: {field} of {count} entries"


def shown_unit() -> Iterator[str]:
    """Yield which of systemd's own commands show a key."""
    for verb in ("cat", "show", "status"):
        done = subprocess.run(["systemctl", verb, "--no-pager", "--full", unit], capture_output=True, check=False)
        # The status repeats the journal's last lines, which are looked at on their own.
        shown = done.stdout.partition(b"\n\n")[0] if verb == "status" else done.stdout
        if holds_key(shown):
            yield f"systemctl {verb} {unit}"


def processes() -> Iterator[str]:
    """Yield the processes whose arguments everybody can read with ps."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if holds_key(path.read_bytes()):
                yield f"the command line of process {path.parent.name}"
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile


if not keys:
    raise SystemExit(f"{directory / 'credentials.yaml'} holds no key")
print(json.dumps(list({"journal": journal, "unit": shown_unit, "processes": processes}[where]())))
