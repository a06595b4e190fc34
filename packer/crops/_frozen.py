"""Rules that are their settings: frozen, equal where these are equal, and shown as they are made."""

from __future__ import annotations

from typing import Any

__all__ = ["Frozen"]


class Frozen:
    """What has settings in `_settings`, and never others."""

    _settings: dict[str, Any]

    _shown: str | None = None
    """The name of what makes it, where that is not its class."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{_kind(self)} are frozen: make another {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frozen):
            return NotImplemented
        return type(self) is type(other) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash((type(self), *self._settings.items()))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"{self._shown or type(self).__name__}({settings})"


def _kind(rule: Frozen) -> str:
    return rule.__module__.split(".")[1].replace("augment", "augmentations")
