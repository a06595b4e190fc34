"""A safe parser of pickles that contain numbers, texts, bytes, tuples, lists, dicts and NumPy arrays.

The parser imports nothing and calls nothing that a pickle names. It knows the few callables that make bytes and arrays,
and raises an error for any other callable. It does not read bytes and array elements, but records their location in the
file. The opcodes are described in Python's `pickletools`.
"""

from __future__ import annotations

import codecs
import math
import pickletools
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from packer._containers.blocks import RangeReader
from packer._containers.contract import Piece
from packer._storage.packfile import PackFile
from packer.errors import printable

_DTYPE = re.compile(r"[<>|=]?[biuf][1248]")

MOST_THINGS = 100_000
"""The maximum number of objects (numbers, texts, lists, ...) in one value."""

_SHARED = 1 << 22  # allowed bytes of a value in excess of its size in the file


class Budget:
    """The number of objects and bytes that a value may still use; an object counts once for each reference to it.

    A reference takes a few bytes of a pickle and stands for a whole object. Nested lists of references can double in
    size with every level, so without a limit a short file could fill the memory.

    Parameters
    ----------
    size : int
        Size of the value in its file. The budget is this size plus 4 MiB.
    things : int
        Maximum number of objects.
    """

    __slots__ = ("_bytes", "_most_bytes", "_most_things", "_size", "_things")

    def __init__(self, size: int, things: int = MOST_THINGS) -> None:
        self._size = size
        self._bytes = self._most_bytes = size + _SHARED
        self._things = self._most_things = things

    def spend(self, size: int = 0, things: int = 1) -> None:
        """Subtract bytes and objects from the budget.

        Raises
        ------
        ValueError
            If the budget is exceeded.
        """
        self._things -= things
        self._bytes -= size
        if self._things < 0:
            raise ValueError(f"its {self._size:,} bytes expand to more than {self._most_things:,} objects")
        if self._bytes < 0:
            raise ValueError(f"its {self._size:,} bytes expand to more than {self._most_bytes:,} bytes")


HELD = 64
"""How many leading bytes of a blob are read together with the pickle."""


@dataclass(slots=True)
class Blob:
    """Bytes in a pickle, either as a range of its file or decoded in memory.

    Attributes
    ----------
    offset : int
        The offset in the file; -1 for bytes in memory.
    size : int
    head : bytes
        The first bytes; all bytes if the blob is in memory.
    """

    offset: int
    size: int
    head: bytes

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Make a blob of bytes in memory."""
        return cls(-1, len(data), data)

    def data(self, file: PackFile) -> bytes:
        """Return all bytes."""
        return self.head if len(self.head) == self.size else file.read(self.offset, self.size)

    def piece(self, unit: int) -> Piece | bytes:
        """Return the range in file `unit` of a container, or the bytes in memory."""
        return self.head if self.offset < 0 else Piece(unit, self.offset, self.size)


@dataclass(slots=True)
class Array:
    """The description of a NumPy array in a pickle: dtype, shape, elements, and their order (C's or Fortran's)."""

    dtype: str
    shape: tuple[int, ...]
    elements: Blob
    fortran: bool = False

    def value(self, file: PackFile) -> Any:
        """Return the array; ValueError if the number of elements does not match the shape."""
        array = np.frombuffer(self.elements.data(file), self.dtype)
        return array.reshape(self.shape, order="F" if self.fortran else "C")


def array_of(dtype: str, shape: Any, elements: Any, fortran: bool) -> Array:
    """Build an array from an untrusted description.

    Raise ValueError if the dtype is not numeric, the shape is invalid, or the elements do not fill the shape.
    """
    if not _DTYPE.fullmatch(dtype):
        raise ValueError("an array of values other than numbers")
    if (
        not isinstance(shape, tuple)
        or len(shape) > 8
        or not all(isinstance(side, int) and 0 <= side < 1 << 40 for side in shape)
    ):
        raise ValueError("an array with an invalid shape")
    if not isinstance(elements, Blob):
        raise ValueError("an array whose elements are not bytes")
    if math.prod(shape) * int(dtype[-1]) != elements.size:
        raise ValueError(f"an array whose elements have {elements.size} bytes, which do not match its shape")
    return Array(dtype, shape, elements, fortran)


_DIGITS = 20  # the most digits, or bytes, of an integer
_LONGEST_NAME = 1 << 10  # of a module, a function, a dtype, an encoding
_MOST_ARGUMENTS = 8
_PROTOCOLS = range(2, 6)


class _Mark:
    pass


class _Name(NamedTuple):
    """The name of an object that a pickle asks to import."""

    text: str


class _DType:
    """A dtype that a pickle creates first and fills in later."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Unfilled:
    def __init__(self) -> None:
        self.array: Array | None = None


_MARK = _Mark()


def is_pickle(head: bytes) -> bool:
    """Tell whether bytes begin like a pickle of any protocol."""
    return (head[:1] == b"\x80" and len(head) > 1 and head[1] in _PROTOCOLS) or head[:1] in (b"(", b"]", b"}", b"c")


def unpickled(file: PackFile, offset: int, size: int, most: int = MOST_THINGS, head: bytes = b"") -> Any:
    """Parse the pickle in a range of a file, and return its value.

    Parameters
    ----------
    file : PackFile
    offset, size : int
    most : int
        Maximum number of opcodes.
    head : bytes, optional
        The first bytes, if they were read already.

    Returns
    -------
    object
        An int, float, bool, None, str, tuple, list, dict, `Blob` or `Array`. A list may occur in several other lists,
        or contain itself: code that walks the value must limit the expansion with a `Budget`.

    Raises
    ------
    ValueError
        If the pickle is damaged, or contains an object of any other type.
    """
    machine = _Machine(file, RangeReader(file, offset, size, head))
    try:
        value = _plain(machine.run(most))
    except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("a damaged pickle") from error
    if value is None or isinstance(value, (bool, int, float, str, tuple, list, dict, Blob, Array)):
        return value
    raise ValueError("a pickle of objects other than numbers, texts, bytes, lists and dicts")


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _Unfilled) else value


class _Machine:
    """An interpreter of pickle opcodes, with a stack and a memo."""

    def __init__(self, file: PackFile, window: RangeReader) -> None:
        self._file, self._window = file, window
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._budget = Budget(window.left, window.left)  # for copies of referenced objects

    def run(self, most: int) -> Any:
        """Run all opcodes, and return the value on top of the stack."""
        window, stack = self._window, self._stack
        for _ in range(most):
            opcode = window.byte()
            if opcode == 0x2E:  # STOP
                return stack.pop()
            action = _ACTIONS.get(opcode)
            if action is None:
                raise ValueError(f"a pickle with the opcode {_called(opcode)}, which packer does not read")
            action(self)
        raise ValueError("a pickle with too many opcodes")

    # Each method executes one or several opcodes.

    def number(self, count: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._window.take(count), "little", signed=signed)

    def push_number(self, count: int, *, signed: bool = False) -> None:
        self._stack.append(self.number(count, signed=signed))

    def push_long(self, width: int) -> None:
        count = self.number(width)
        if count > _DIGITS:
            raise ValueError("a pickle with a very large integer")
        self._stack.append(int.from_bytes(self._window.take(count), "little", signed=True))

    def push_text_number(self) -> None:
        line = self._window.line().rstrip(b"L")
        if line in (b"00", b"01"):
            self._stack.append(line == b"01")
            return
        if len(line) > _DIGITS:
            raise ValueError("a pickle with a very large integer")
        self._stack.append(int(line))

    def push_blob(self, width: int) -> None:
        size, offset = self.number(width), self._window.tell()
        if size > self._window.left:
            raise ValueError(f"{size} bytes are declared, but only {self._window.left} are left")
        head = self._window.take(min(size, HELD))
        self._window.skip(size - len(head))
        self._stack.append(Blob(offset, size, head))

    def push_text(self, width: int) -> None:
        self._stack.append(self._window.take(self.number(width)).decode("utf-8", "surrogatepass"))

    def push_quoted(self) -> None:
        line = self._window.line().strip()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
            raise ValueError("a pickle with a string that has no quotes")
        self._stack.append(Blob.of(codecs.escape_decode(line[1:-1])[0]))

    def push_line(self) -> None:
        self._stack.append(self._window.line().decode("raw_unicode_escape"))

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def push_double(self) -> None:
        self._stack.append(struct.unpack(">d", self._window.take(8))[0])

    def push_global(self) -> None:
        module, name = self._window.line(), self._window.line()
        self._stack.append(_Name(f"{module.decode('utf-8', 'replace')}.{name.decode('utf-8', 'replace')}"))

    def push_stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(_Name(f"{self._text(module)}.{self._text(name)}"))

    def put(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def get(self, number: int) -> None:
        self._stack.append(self._memo[number])

    def since_mark(self) -> list[Any]:
        """Pop the topmost mark and everything above it; return the popped values."""
        stack = self._stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a damaged pickle")
        found = stack[at + 1 :]
        del stack[at:]
        return list(map(_plain, found))

    def taken(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise ValueError("a damaged pickle")
        found = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return list(map(_plain, found))

    def extend(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise ValueError("a damaged pickle")
        self._stack[-1].extend(values)

    def update(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], dict):
            raise ValueError("a damaged pickle")
        self._stack[-1].update(self.pairs(values))

    def pairs(self, values: list[Any]) -> dict[Any, Any]:
        found = {}
        for key, value in zip(values[::2], values[1::2], strict=True):
            if isinstance(key, Blob):
                self._budget.spend(key.size)
                key = key.data(self._file).decode("utf-8", "replace")
            if not isinstance(key, (str, int)):  # a tuple in a tuple in a tuple ... would be hashed
                raise ValueError("a pickle with a dict whose keys are not texts")
            found[key] = value
        return found

    def call(self) -> None:
        """Push the value that a function call in a pickle would return, without calling the function."""
        arguments, function = self._stack.pop(), self._stack.pop()
        maker = _MAKERS.get(function.text) if isinstance(function, _Name) else None
        if isinstance(function, _Name) and function.text in _RECONSTRUCTORS:
            classes = [one.text for one in arguments if isinstance(one, _Name)] if isinstance(arguments, tuple) else []
            self._refuse_instance(classes[0] if classes else "")
        if maker is None:
            named = f"{function.text[:100]!r}" if isinstance(function, _Name) else "an object that is not a name"
            raise ValueError(f"a pickle that calls {named}, which packer does not do")
        if not isinstance(arguments, tuple) or len(arguments) > _MOST_ARGUMENTS:
            raise ValueError("a damaged pickle")
        self._stack.append(maker(self, *arguments))

    def make_instance(self) -> NoReturn:
        """Raise an error that names the class of an instance in the pickle."""
        names = [value.text for value in reversed(self._stack[-3:]) if isinstance(value, _Name)]
        self._refuse_instance(names[0] if names else "")

    def _refuse_instance(self, name: str) -> NoReturn:
        shown = f", {printable(name[:100])}," if name else ""
        raise ValueError(
            f"a pickle with an instance of a class{shown} which is a Python object that packer never creates. "
            "Pickle only the bytes of image files, numbers and texts"
        )

    def build(self) -> None:
        """Fill in a dtype or an array that an earlier opcode created."""
        state, made = self._stack.pop(), self._stack[-1]
        if isinstance(made, _DType) and isinstance(state, tuple):
            order = self._text(state[1])
            made.name = (order if order in ("<", ">") else "|") + made.name.lstrip("<>|=")
        elif isinstance(made, _Unfilled) and isinstance(state, tuple):
            _, shape, dtype, fortran, elements = state
            made.array = _array(dtype, shape, elements, bool(fortran))
        else:
            raise ValueError("a pickle with an object that packer does not read")

    def dtype(self, name: Any, *_: Any) -> _DType:
        return _DType(self._text(name))

    def scalar(self, dtype: Any, elements: Any) -> Any:
        array = _array(dtype, (), elements, False).value(self._file)
        return array.item()

    def encoded(self, text: Any, encoding: Any) -> Blob:
        if (name := self._text(encoding)) not in ("latin1", "latin-1"):
            raise ValueError(f"a pickle with bytes encoded as {name[:100]}")
        if not isinstance(text, str):
            raise ValueError("a damaged pickle")
        self._budget.spend(len(text))
        return Blob.of(text.encode("latin-1"))

    def made_bytes(self, *arguments: Any) -> Any:
        if not arguments:
            return Blob.of(b"")
        return arguments[0] if len(arguments) == 1 else self.encoded(*arguments)

    def from_buffer(self, elements: Any, dtype: Any, shape: Any, order: Any) -> Array:
        return _array(dtype, shape, elements, self._text(order) == "F")

    def unfilled(self, *_: Any) -> _Unfilled:
        return _Unfilled()

    def _text(self, value: Any) -> str:
        """Decode a short name; ValueError if the name is invalid."""
        if isinstance(value, Blob) and value.size <= _LONGEST_NAME:
            value = value.data(self._file).decode("ascii", "replace")
        if not isinstance(value, str) or len(value) > _LONGEST_NAME:
            raise ValueError("a pickle with a name that is not a short text")
        return value


def _called(opcode: int) -> str:
    """Return an opcode's name, as `pickletools` gives it."""
    names = (known.name for known in pickletools.opcodes if known.code == chr(opcode))
    return next(names, f"{opcode:#04x}")


def _array(dtype: Any, shape: Any, elements: Any, fortran: bool) -> Array:
    if not isinstance(dtype, _DType):
        raise ValueError("a damaged pickle")
    return array_of(dtype.name, shape, elements, fortran)


_MAKERS: dict[str, Callable[..., Any]] = {
    "_codecs.encode": _Machine.encoded,
    "builtins.bytearray": _Machine.made_bytes,
    "builtins.bytes": _Machine.made_bytes,
    "__builtin__.bytearray": _Machine.made_bytes,
    "__builtin__.bytes": _Machine.made_bytes,
    "numpy.dtype": _Machine.dtype,
}
for _module in ("numpy.core", "numpy._core"):
    _MAKERS[f"{_module}.multiarray.scalar"] = _Machine.scalar
    _MAKERS[f"{_module}.multiarray._reconstruct"] = _Machine.unfilled
    _MAKERS[f"{_module}.numeric._frombuffer"] = _Machine.from_buffer

_RECONSTRUCTORS = ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__")

_ACTIONS: dict[int, Callable[[_Machine], Any]] = {
    0x80: lambda m: m.number(1),  # PROTO
    0x95: lambda m: m.number(8),  # FRAME
    ord("("): lambda m: m.push(_MARK),
    ord("0"): lambda m: m.taken(1),  # POP
    ord("1"): lambda m: m.since_mark(),  # POP_MARK
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("I"): _Machine.push_text_number,
    ord("L"): _Machine.push_text_number,
    ord("J"): lambda m: m.push_number(4, signed=True),
    ord("K"): lambda m: m.push_number(1),
    ord("M"): lambda m: m.push_number(2),
    0x8A: lambda m: m.push_long(1),
    0x8B: lambda m: m.push_long(4),
    ord("F"): lambda m: m.push(float(m._window.line())),
    ord("G"): _Machine.push_double,
    ord("S"): _Machine.push_quoted,
    ord("T"): lambda m: m.push_blob(4),
    ord("U"): lambda m: m.push_blob(1),
    ord("B"): lambda m: m.push_blob(4),
    ord("C"): lambda m: m.push_blob(1),
    0x8E: lambda m: m.push_blob(8),
    0x96: lambda m: m.push_blob(8),
    ord("V"): _Machine.push_line,
    ord("X"): lambda m: m.push_text(4),
    0x8C: lambda m: m.push_text(1),
    0x8D: lambda m: m.push_text(8),
    ord(")"): lambda m: m.push(()),
    ord("t"): lambda m: m.push(tuple(m.since_mark())),
    0x85: lambda m: m.push(tuple(m.taken(1))),
    0x86: lambda m: m.push(tuple(m.taken(2))),
    0x87: lambda m: m.push(tuple(m.taken(3))),
    ord("]"): lambda m: m.push([]),
    ord("l"): lambda m: m.push(m.since_mark()),
    ord("a"): lambda m: m.extend(m.taken(1)),
    ord("e"): lambda m: m.extend(m.since_mark()),
    ord("}"): lambda m: m.push({}),
    ord("d"): lambda m: m.push(m.pairs(m.since_mark())),
    ord("s"): lambda m: m.update(m.taken(2)),
    ord("u"): lambda m: m.update(m.since_mark()),
    ord("p"): lambda m: m.put(int(m._window.line())),
    ord("q"): lambda m: m.put(m.number(1)),
    ord("r"): lambda m: m.put(m.number(4)),
    0x94: lambda m: m.put(len(m._memo)),
    ord("g"): lambda m: m.get(int(m._window.line())),
    ord("h"): lambda m: m.get(m.number(1)),
    ord("j"): lambda m: m.get(m.number(4)),
    ord("c"): _Machine.push_global,
    0x93: _Machine.push_stack_global,
    ord("R"): _Machine.call,
    ord("b"): _Machine.build,
    **dict.fromkeys((0x81, 0x92, ord("i"), ord("o")), _Machine.make_instance),  # NEWOBJ, NEWOBJ_EX, INST, OBJ
}
"""The method of each opcode."""
