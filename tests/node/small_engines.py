# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines that install in seconds: wheels made on the spot, named like the real ones, and an index that serves them."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.lock_file import canonical_name

# While this file is on the node, importing an engine takes its time, so that a test can meet an installation at work.
HOLD = "/run/hold-import"
_SGLANG = f"""import os, time
__version__ = "VERSION"
while os.path.exists("{HOLD}"):
    time.sleep(0.1)
"""


def make_wheel(folder: Path, project: str, version: str, files: Mapping[str, str | bytes]) -> str:
    """Write a wheel; return its line for a lock."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{project}-{version}.dist-info"
    contents: dict[str, str | bytes] = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*contents, f"{info}/RECORD"])
    path = folder / f"{project}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            # A fixed date: the same files give the same wheel.
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)
    return f"{project}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class SmallEngines:
    """A folder with locks and wheels, and settings that name them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheelhouse = folder / "wheels"
        shutil.rmtree(folder, ignore_errors=True)
        self.wheelhouse.mkdir(parents=True)
        self._helper = make_wheel(self.wheelhouse, "helper", "1.0", {"helper.py": "answer = 42\n"})

    def lock(self, version: str, change: Mapping[str, str] | None = None) -> Path:
        """Write the lock of an engine of this version and its wheels; `change` replaces texts in the lock."""
        files = {"sglang/__init__.py": _SGLANG.replace("VERSION", version)}
        text = make_wheel(self.wheelhouse, "sglang", version, files) + self._helper
        for old, new in (change or {}).items():
            assert old in text
            text = text.replace(old, new)
        path = self.folder / f"{version}{'-changed' if change else ''}.lock"
        path.write_text(text, encoding="utf-8")
        return path

    def engine(self, version: str, name: str = "default", **settings: Any) -> dict[str, Any]:
        """Return the settings of an engine of this version, from the wheelhouse unless another source is given."""
        given = {"name": name, "lock": str(self.lock(version)), **settings}
        if not {"wheelhouse", "wheelhouse_on_node", "index_url"} & settings.keys():
            given["wheelhouse"] = str(self.wheelhouse)
        return given


class _Index(SimpleHTTPRequestHandler):
    """The simple index's protocol over a folder of wheels; files whose project is named in `slow` come slowly."""

    slow: str = ""
    asked: list[str]

    def do_GET(self) -> None:
        """Answer for a project's page or a file."""
        self.asked.append(self.path)
        parts = self.path.strip("/").split("/")
        if parts[0] == "simple" and len(parts) == 2:
            self._page(parts[1])
        else:
            if self.slow and self.slow in self.path:
                time.sleep(8)
            super().do_GET()

    def _page(self, project: str) -> None:
        names = [path.name for path in Path(self.directory).glob("*.whl")]
        links = [f'<a href="/{name}">{name}</a>' for name in names if canonical_name(name.split("-")[0]) == project]
        body = "<!DOCTYPE html><html><body>" + "".join(links) + "</body></html>"
        self.send_response(200 if links else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Stay quiet."""


@contextmanager
def serve_index(address: str, folder: Path, slow: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve a folder's wheels on an address of this machine; yield its URL and the paths that were asked for."""
    asked: list[str] = []
    handler = type("Index", (_Index,), {"slow": slow, "asked": asked})
    server = ThreadingHTTPServer((address, 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}/simple", asked
    finally:
        server.shutdown()
        server.server_close()
