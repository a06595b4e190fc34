"""Chromium, driven by Playwright, and a visit to the viewer's page."""

from __future__ import annotations

import shutil
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
ALL_THERE = """
() => {
  const cells = [...document.querySelectorAll(".cell")];
  return cells.length > 0 && cells.every((cell) => cell.dataset.filled);
}
"""


class Visit:
    """A page, its requests, and its messages and errors."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.address = address.partition("#")[0]
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.context = browser.new_context(**{"viewport": {"width": 1000, "height": 700}, **settings})
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)

    def __enter__(self) -> Visit:
        self.page.wait_for_function(ALL_THERE)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info == (None, None, None):
            assert self.complaints == []
            assert [url for url in self.asked if not url.startswith((self.address, "blob:"))] == []
        self.context.close()

    def until(self, said: str) -> None:
        """Wait until a JavaScript expression is true."""
        self.page.wait_for_function(f"() => {said}")  # the page's policy refuses strings that are not functions

    def until_counted(self, text: str) -> None:
        """Wait until the page says how many images are found."""
        self.until(f"document.getElementById('count').textContent === {text!r}")

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.eval_on_selector_all(selector, "all => all.map((one) => one.textContent)")
        return found
