"""`packer.view`: opens the viewer from Python, in a notebook or in a browser next to the program."""

from __future__ import annotations

import atexit
import os
import threading
import webbrowser
from collections import deque
from collections.abc import Callable, Sequence

from packer._display import count, element, in_notebook, safe
from packer._storage.progress import shown_progress
from packer._storage.system import require_count
from packer._viewing.catalog import Catalog, open_catalog
from packer._viewing.server import Server

_MOST_OPEN = 8  # open viewers of a process; a cell that is run again leaves its earlier viewer open

_open: deque[Viewer] = deque()
_opening = threading.Lock()


class Viewer:
    """A page with the pictures, classes, fields and histograms of packs, served only to this machine.

    A notebook shows the page in the output of the cell. The page is available until `close` is called, a ``with`` block
    ends, or the program ends. If more than eight viewers are open, the oldest one is closed.

    Attributes
    ----------
    url : str
        The address of the page on the loopback interface. The address contains a secret: anyone on this machine who
        knows the address can see the packs.
    """

    def __init__(self, catalog: Catalog, port: int = 0, *, framed: bool = False, height: int = 640) -> None:
        self._catalog, self._height, self._is_open = catalog, height, True
        self._title = f"{catalog.title}: {count(len(catalog))} samples"
        self._server = Server(catalog, port, framed=framed)
        self.url = self._server.address
        self._thread = threading.Thread(target=self._server.serve_forever, name="packer-viewer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving the page, and close the packs."""
        if self._is_open:
            self._is_open = False
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._catalog.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{self._title}, {'at ' + self.url if self._is_open else 'closed'}"

    def _repr_html_(self) -> str:
        if not self._is_open:
            return element(f"<p>{safe(self)}</p>")
        port, url = self._server.server_port, safe(self.url)
        forward = f"ssh -L {port}:127.0.0.1:{port} HOST"
        return element(
            f'<iframe src="{url}" title="{safe(self._title)}" height="{self._height}" referrerpolicy="no-referrer">'
            f'</iframe><p>{safe(self._title)}, at <a href="{url}" target="_blank" rel="noopener noreferrer">{url}</a>'
            f"<br>Nothing to see? The kernel may run on another machine: <code>{forward}</code> there brings the page "
            "here.</p>"
        )


def view(
    packs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    port: int | None = None,
    browser: bool | None = None,
    height: int = 640,
    progress: Callable[[int, int], None] | bool | None = None,
) -> Viewer:
    """Show the pictures, classes, fields, crops, histograms and duplicates of packs, as `packer view` does.

    In a notebook, a cell that ends with the call shows the page in its output. Outside notebooks, the page opens in a
    browser, and is available while the program runs.

    Parameters
    ----------
    packs : path, or sequence of paths
        A pack, an index, a tree of images or a container of another tool. Several paths are shown as one pack.
    port : int, optional
        The port of the page; by default any free port. Choose a port if you want to forward it to another machine.
    browser : bool, optional
        Whether to open a browser; by default only outside notebooks.
    height : int
        The height of the page in a notebook, in pixels.
    progress : bool or callable, optional
        True shows a progress bar while images outside packs are indexed. A callable is called with the number of images
        indexed and their total.

    Returns
    -------
    Viewer
        Its `url` is the address of the page; `close` stops serving it.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    PackError, SourceError
        If a path does not exist, or cannot be read.
    OptionError
        If the labels of several packs are of different types.
    DestinationError
        If the port is taken.
    """
    require_count("port", port)
    require_count("height", height)
    paths = [packs] if isinstance(packs, (str, os.PathLike)) else list(packs)
    show = shown_progress(progress, paths[0] if len(paths) == 1 else "view")
    framed = in_notebook()
    catalog = open_catalog(paths, show)
    try:
        viewer = Viewer(catalog, port or 0, framed=framed, height=height)
    except BaseException:
        catalog.close()
        raise
    _keep(viewer)
    if not framed if browser is None else browser:
        # In a thread, because the call waits until some browsers end, and until the program in $BROWSER ends.
        threading.Thread(target=webbrowser.open, args=(viewer._server.door,), daemon=True).start()
    return viewer


def _keep(viewer: Viewer) -> None:
    """Keep a viewer alive, because its page may be open although no variable refers to the viewer.

    If too many viewers are open, the oldest one is closed.
    """
    with _opening:
        if not _open:
            atexit.register(_close_all)
        _open.append(viewer)
        oldest = _open.popleft() if len(_open) > _MOST_OPEN else None
    if oldest is not None:
        oldest.close()


def _close_all() -> None:
    """Close all viewers at the end of the program, because a process that ends while decoding images is aborted."""
    for viewer in _open:
        viewer.close()
