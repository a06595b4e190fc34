"""Rules as the records that C takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.native.choosing import RULE, RULES
from packer._images.operations import Operations

__all__ = ["Coded", "coded", "joined"]


class Coded(NamedTuple):
    """Rules for images of one size.

    Attributes
    ----------
    records : (M,) array of RULE
    tables : tuple of arrays of OPERATION
        What the records have the addresses of.
    """

    records: npt.NDArray[Any]
    tables: tuple[Operations, ...] = ()


def coded(kind: str, randoms: int, table: Operations | None = None, **numbers: float) -> Coded:
    """Return one rule, of these fields of `RULE`."""
    record = np.zeros(1, RULE)
    record["kind"], record["randoms"] = RULES.index(kind), randoms
    for name, number in numbers.items():
        record[name] = number
    if table is None:
        return Coded(record)
    record["table"] = table.ctypes.data
    return Coded(record, (table,))


def joined(rules: Sequence[Coded | None]) -> Coded | None:
    """Return rules one after the other; None where C does not know one of them."""
    known = [rule for rule in rules if rule is not None]
    if len(known) < len(rules):
        return None
    records = np.concatenate([np.zeros(0, RULE), *(rule.records for rule in known)])
    return Coded(records, tuple(table for rule in known for table in rule.tables))
