"""What was uploaded of a pack: lines of JSON on this machine's disk, which a killed upload is continued from.

``{"key": K, "before": [ID, …]}``   an upload of the object K in parts is about to begin, beside these
``{"key": K, "id": ID}``            it has begun
``{"key": K, "part": N, "md5": M, "etag": E}``   a part arrived at a store whose ETags are no MD5s
``{"key": K, "done": E}``           the object is there, and has this ETag

A line is on the disk before what it announces is asked for. The last line may be torn, and is left out then. No line
has anything secret: an upload's id is of no use without credentials.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from packer._storage.files import AppendFile, writing_to

__all__ = ["UploadLog"]


class UploadLog:
    """The lines of one pack's upload. Safe in many threads at once.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    ids : dict of str to str
        The upload of each object that was begun last.
    before : dict of str to set of str
        Uploads of an object that were there when one was about to begin, of which no id was written down.
    done : dict of str to str
        The ETags of objects that were completed.
    """

    def __init__(self, path: Path) -> None:
        self.ids: dict[str, str] = {}
        self.before: dict[str, set[str]] = {}
        self.done: dict[str, str] = {}
        self._parts: dict[tuple[str, int, str], str] = {}
        self._lock = threading.Lock()
        with writing_to(path):
            text = path.read_bytes() if os.path.exists(path) else b""
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._take(json.loads(line))
        self._file = AppendFile(path, keep=len(whole))

    def expect(self, key: str, before: set[str]) -> None:
        """Write down that an upload is about to begin, beside the uploads `before`."""
        self._write({"key": key, "before": sorted(before)})

    def begun(self, key: str, id: str) -> None:
        """Write down that an upload has begun."""
        self._write({"key": key, "id": id})

    def arrived(self, key: str, number: int, md5: str, etag: str) -> None:
        """Write down the ETag that a store gave a part, where that is not the MD5."""
        self._write({"key": key, "part": number, "md5": md5, "etag": etag})

    def finished(self, key: str, etag: str) -> None:
        """Write down that an object is complete."""
        self._write({"key": key, "done": etag})

    def etag_of(self, key: str, number: int, md5: str) -> str:
        """Return the ETag of a part with this MD5: the MD5, where nothing else was written down."""
        return self._parts.get((key, number, md5), md5)

    def knows(self, key: str) -> bool:
        """Tell whether an upload of this object was begun here."""
        return key in self.ids or key in self.before or key in self.done

    @property
    def empty(self) -> bool:
        """Whether nothing was begun."""
        return not (self.ids or self.before or self.done)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._take(line)
            self._file.append(json.dumps(line).encode("ascii") + b"\n")
            self._file.flush()
            self._file.sync()

    def _take(self, line: dict[str, Any]) -> None:
        key = line["key"]
        if "before" in line:
            self.ids.pop(key, None)
            self.before[key] = set(line["before"])
        elif "id" in line:
            self.before.pop(key, None)
            self.ids[key] = line["id"]
        elif "part" in line:
            self._parts[key, line["part"], line["md5"]] = line["etag"]
        else:
            self.ids.pop(key, None)
            self.done[key] = line["done"]
