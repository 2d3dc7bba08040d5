# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers of safetensors files and the index over them: names, types and sizes of tensors, without their contents.

A file starts with the length of its header (8 bytes, little-endian) and the header, a JSON object. Headers of large
checkpoints have tens of MB, and a damaged one may hold anything, so both are scanned entry by entry and never become
a tree of objects: what is held in memory is the text itself.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import model_bounds
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

# The limit of the safetensors library itself (MAX_HEADER_SIZE); an index is as long as all headers of a checkpoint.
LARGEST_HEADER_BYTES = 100_000_000
_MOST_METADATA_BYTES = 8_000_000
INDEX = "model.safetensors.index.json"
# Bits of an element, by the names that the format gives to its types.
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
# Repeats are bounded: what the pattern engine must remember of a text that does not fit would be unbounded, too.
_NAME = rb'"([^"\\\x00-\x1f]{0,4096}(?:\\.[^"\\\x00-\x1f]{0,4096}){0,64})"'
_SHAPE = rb"\[([\d, \t\r\n]{0,400})\]"
_OFFSETS = rb"\[\s*(\d{1,19})\s*,\s*(\d{1,19})\s*\]"
_OPEN = re.compile(rb"\s*\{\s*(\}?)")
_USUAL = re.compile(
    rb"\s*" + _NAME + rb'\s*:\s*\{\s*"dtype"\s*:\s*"(\w{1,20})"\s*,\s*"shape"\s*:\s*' + _SHAPE
    + rb'\s*,\s*"data_offsets"\s*:\s*' + _OFFSETS + rb"\s*\}\s*([,}])"
)  # fmt: skip
_KEY = re.compile(rb"\s*" + _NAME + rb"\s*:\s*\{")
_MEMBER = re.compile(
    rb'\s*"(?:(dtype)"\s*:\s*"(\w{1,20})"|(shape)"\s*:\s*' + _SHAPE + rb'|(data_offsets)"\s*:\s*' + _OFFSETS
    + rb")\s*([,}])"
)  # fmt: skip
_PAIR = re.compile(rb"\s*" + _NAME + rb"\s*:\s*" + _NAME + rb"\s*([,}])")
_MARK = re.compile(rb"\s*([,}])")
_COLON = re.compile(rb"\s*:\s*(?=\")")
_QUOTE = re.compile(rb"\s*(?=\")")
_WEIGHT_MAP = re.compile(rb'"weight_map"\s*:\s*\{\s*(\}?)')
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint as its header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    size_bytes: int


def tensors(path: Path) -> Iterator[Tensor]:
    """Read the header of a file and yield its tensors, in the header's order.

    The whole file is checked by the time the last one was yielded: types and shapes against sizes, and that the
    tensors fill the file without gap or overlap, as the format demands.

    Raises:
        HeadroomError: With the finding `model.weights_damaged`, or `model.weights_missing` for a file that isn't there.
    """
    header, content_bytes = _read(path)
    starts, ends = array("Q"), array("Q")
    in_order, reached = True, 0
    for name, dtype, shape, start, end in _entries(path, header):
        elements = 1
        for length in shape:
            elements *= length
        bits = BITS.get(dtype)
        if bits is None:
            raise _damaged(path, f"gives {name!r} the type {dtype!r}, which the format does not have")
        if (elements * bits + 7) // 8 != end - start:
            raise _damaged(
                path,
                f"says that {name!r} ({dtype}, shape {list(shape)}) lies in bytes {start} to {end}, but it has "
                f"{(elements * bits + 7) // 8} bytes",
            )
        if end > content_bytes:
            raise _damaged(
                path, f"ends before {name!r} does: {end} bytes of tensors are announced and {content_bytes} are there"
            )
        in_order = in_order and start == reached
        reached = end
        starts.append(start)
        ends.append(end)
        yield Tensor(name, dtype, shape, elements, end - start)
    if not in_order:
        reached = _filled(path, starts, ends)
    if reached != content_bytes:
        raise _damaged(path, f"has {content_bytes} bytes of tensors and its header accounts for {reached}")


def read_index(folder: Path) -> dict[str, str] | None:
    """Return the names of all tensors with the file that holds each, or None where there is no index.

    Raises:
        HeadroomError: With the finding `model.weights_damaged` if the index can't be understood.
    """
    path = folder / INDEX
    try:
        size = path.stat().st_size
        if size > LARGEST_HEADER_BYTES:
            raise _damaged(path, f"has {size} bytes, more than any index")
        text = path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise missing(path) from None
        return None
    except OSError as error:
        raise _damaged(path, f"can't be read: {error.strerror or error}") from error
    begin = _WEIGHT_MAP.search(text)
    if begin is None:
        raise _damaged(path, "has no weight_map")
    found: dict[str, str] = {}
    files: dict[bytes, str] = {}
    place, more = begin.end(), not begin.group(1)
    while more:
        pair = _PAIR.match(text, place)
        if pair is None:
            raise _damaged(path, f"is no index from byte {place} on: {_shown(text, place)}")
        name, file, mark = pair.groups()
        if file not in files:
            files[file] = _plain_name(path, _decoded(path, file))
        found[_decoded(path, name)] = files[file]
        if len(found) > model_bounds.TENSORS:
            raise _damaged(path, f"names over {model_bounds.TENSORS} tensors, more than any model has")
        place, more = pair.end(), mark == b","
    return found


def missing(path: Path) -> HeadroomError:
    """Return the error for a file that should be there; a link that leads nowhere is named as one."""
    if path.is_symlink():
        text = f"{path} is a link to {path.readlink()}, which is not there."
    else:
        text = f"{path} is not there."
    return refusal("model.weights_missing", text, "Copy or download the missing files of the model.")


def _read(path: Path) -> tuple[bytes, int]:
    """Return the header's text and the number of bytes behind it."""
    try:
        with path.open("rb") as handle:
            size = path.stat().st_size
            if size < 8:
                raise _damaged(path, f"has {size} bytes, which is no safetensors file" if size else "is empty")
            length = int.from_bytes(handle.read(8), "little")
            if length > LARGEST_HEADER_BYTES:
                raise _damaged(path, f"announces a header of {length} bytes, which is more than the format allows")
            if length > size - 8:
                raise _damaged(path, f"has {size} bytes and announces a header of {length}")
            header = handle.read(length)
            if len(header) < length:
                raise _damaged(path, f"ends within its header, after {len(header)} of {length} bytes")
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise _damaged(path, f"can't be read: {error.strerror or error}") from error
    return header, size - 8 - length


def _entries(path: Path, header: bytes) -> Iterator[tuple[str, str, tuple[int, ...], int, int]]:
    opening = _OPEN.match(header)
    if opening is None:
        raise _damaged(path, f"has a header that is no JSON object: {_shown(header, 0)}")
    place, more = opening.end(), not opening.group(1)
    while more:
        usual = _USUAL.match(header, place)
        if usual is not None:
            name, dtype, shape, start, end, mark = usual.groups()
            place = usual.end()
        else:
            key = _KEY.match(header, place)
            if key is None:
                raise _breaks_off(path, header, place)
            name = key.group(1)
            if name == b"__metadata__":
                place = _behind_metadata(path, header, key.end())
                dtype = b""
            else:
                dtype, shape, start, end, place = _members(path, header, name, key.end())
            tail = _MARK.match(header, place)
            if tail is None:
                raise _breaks_off(path, header, place)
            place, mark = tail.end(), tail.group(1)
        more = mark == b","
        if dtype:
            yield _decoded(path, name), dtype.decode(), _lengths(path, shape), int(start), int(end)
    if header[place:].strip(b" \t\r\n\x00"):
        raise _damaged(path, f"has text behind its header: {_shown(header, place)}")


def _behind_metadata(path: Path, header: bytes, place: int) -> int:
    """Return where a mapping of texts ends whose opening brace lies before `place`."""
    closing = _OPEN.match(b"{" + header[place : place + 100])
    if closing is not None and closing.group(1):
        return place + closing.end() - 1
    limit = place + _MOST_METADATA_BYTES
    while True:
        for part in (_QUOTE, _COLON):
            found = part.match(header, place)
            if found is None:
                raise _damaged(path, f"has metadata that is no mapping of texts: {_shown(header, place)}")
            place = _behind_text(path, header, found.end(), limit)
        mark = _MARK.match(header, place)
        if mark is None:
            raise _breaks_off(path, header, place)
        place = mark.end()
        if mark.group(1) == b"}":
            return place


def _behind_text(path: Path, header: bytes, place: int, limit: int) -> int:
    """Return the place behind the closing quote of the text whose opening quote is at `place`."""
    quote = place
    while True:
        quote = header.find(b'"', quote + 1, limit)
        if quote < 0 and limit < len(header):
            raise _damaged(path, f"has more than {_MOST_METADATA_BYTES} bytes of metadata")
        if quote < 0:
            raise _breaks_off(path, header, place)
        before = quote
        while header[before - 1 : before] == b"\\":
            before -= 1
        if (quote - before) % 2 == 0:
            return quote + 1


def _members(path: Path, header: bytes, name: bytes, place: int) -> tuple[bytes, bytes, bytes, bytes, int]:
    """Return type, shape and offsets of an entry whose members stand in another order than usual."""
    found: dict[bytes, tuple[bytes, ...]] = {}
    mark = b","
    while mark == b",":
        member = _MEMBER.match(header, place)
        if member is None:
            raise _damaged(
                path,
                f"describes {_decoded(path, name)!r} in a way that can't be understood: {_shown(header, place)}",
            )
        kind = member.group(1) or member.group(3) or member.group(5)
        if kind in found:
            raise _damaged(path, f"gives {kind.decode()} of {_decoded(path, name)!r} twice")
        found[kind] = (member.group(2), member.group(4), member.group(6), member.group(7))
        place, mark = member.end(), member.group(8)
    lacking = [key.decode() for key in (b"dtype", b"shape", b"data_offsets") if key not in found]
    if lacking:
        raise _damaged(path, f"describes {_decoded(path, name)!r} without {' and '.join(lacking)}")
    return found[b"dtype"][0], found[b"shape"][1], found[b"data_offsets"][2], found[b"data_offsets"][3], place


def _lengths(path: Path, shape: bytes) -> tuple[int, ...]:
    text = shape.strip()
    if not text:
        return ()
    try:
        lengths = tuple(int(part) for part in text.split(b","))
    except ValueError as error:
        raise _damaged(path, f"has a shape that can't be understood: [{shape.decode()}]") from error
    if len(lengths) > 16 or max(lengths) >= 2**63:
        raise _damaged(path, f"has an impossible shape: [{shape.decode()[:80]}]")
    return lengths


def _filled(path: Path, starts: array[int], ends: array[int]) -> int:
    """Return up to where tensors that stand in any order fill the file."""
    reached = 0
    for start, end in sorted(zip(starts, ends)):
        if start != reached:
            what = "overlap" if start < reached else "leave a gap"
            raise _damaged(path, f"has tensors that {what} at byte {min(start, reached)} behind the header")
        reached = end
    return reached


def _plain_name(path: Path, name: str) -> str:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise _damaged(path, f"names {name!r}, which is no file of the model's own directory")
    return name


def _decoded(path: Path, raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _damaged(path, f"has a name that is no UTF-8 text: {_shown(raw, 0)}") from error
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)


def _breaks_off(path: Path, header: bytes, place: int) -> HeadroomError:
    return _damaged(path, f"has a header that breaks off or is no JSON at byte {place}: {_shown(header, place)}")


def _shown(text: bytes, place: int) -> str:
    part = text[place : place + 40].decode("utf-8", "replace")
    return repr(part) if part else "it ends there"


def _damaged(path: Path, what: str) -> HeadroomError:
    return refusal("model.weights_damaged", f"{path} {what}.", "Copy or download this file again.")
