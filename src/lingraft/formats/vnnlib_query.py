"""What a VNN-LIB file declares and asserts, in version 1.0 or 2.0, before anything is known of the networks."""

import gc
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np

from lingraft.errors import LingraftError
from lingraft.formats.vnnlib_formula import (
    Atom,
    Normal,
    Scope,
    Variable,
    difference,
    exactly,
    normal_form,
    prefixed,
    unknown,
)
from lingraft.formats.vnnlib_syntax import (
    ELEMENT,
    VARIABLE,
    Bound,
    Declaration,
    Group,
    read_text,
    statements,
    statements_2,
    version,
)

#: Declared tensors with more elements than this in all are refused.
MAX_ELEMENTS = 20_000_000

_VARIABLE = re.compile(VARIABLE)
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
#: Element types of tensors whose values lingraft takes as numbers.
_TYPES = ("real", "float32", "float64")
_RELATIONS_1 = ("<=", ">=")
_RELATIONS_2 = ("<=", ">=", "<", ">", "==", "!=")


@dataclass(frozen=True)
class Tensor:
    """A declared tensor; `onnx` is its name in the ONNX file, if that is given."""

    name: str
    type: str
    shape: tuple[int, ...]
    onnx: str | None = None

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def element(self, number: int) -> str:
        """The name of one of its elements in version 2.0."""
        return f"{self.name}[{','.join(map(str, np.unravel_index(number, self.shape)))}]" if self.shape else self.name


@dataclass(frozen=True)
class DeclaredNetwork:
    """A declared network; `like` is the one that it is equal to (`same`) or isomorphic to."""

    name: str
    inputs: tuple[Tensor, ...]
    hidden: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    like: str | None = None
    same: bool = False

    @property
    def computed(self) -> tuple[Tensor, ...]:
        """Hidden values and outputs."""
        return (*self.hidden, *self.outputs)


@dataclass
class Query:
    """Networks, and what is asserted of their values: all of `alone`, and of each of `disjunctions` one conjunction.

    Inputs are numbered over all networks as they are declared, and so are computed values, hidden ones and outputs: the
    outputs of the constraints. Inputs that are asserted to be equal are one: `copies` has for each declared input the
    number of the one it is, of `inputs` different ones, which the constraints are about.
    """

    version: str
    networks: list[DeclaredNetwork]
    alone: list[Atom] = field(default_factory=list)
    disjunctions: list[Normal] = field(default_factory=list)
    copies: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def inputs(self) -> int:
        """How many different inputs there are."""
        return int(self.copies.max(initial=-1)) + 1

    @cached_property
    def outputs(self) -> int:
        """How many computed values there are."""
        return sum(tensor.size for network in self.networks for tensor in network.computed)

    @property
    def is_plain(self) -> bool:
        """Whether it is about one input tensor and one output tensor of one network, with all inputs independent."""
        (first, *others) = self.networks
        single = not others and len(first.inputs) == len(first.computed) == len(first.outputs) == 1
        return single and self.inputs == len(self.copies)

    def atoms(self) -> Iterator[Atom]:
        """All constraints, wherever they are."""
        yield from self.alone
        for normal in self.disjunctions:
            for atoms in normal:
                yield from atoms

    def input_name(self, number: int) -> str:
        """What the file calls one of the different inputs, or the first of those that are equal."""
        place = int(np.flatnonzero(self.copies == number)[0])
        if self.version == "1.0":
            return f"X_{place}"
        for tensor in (tensor for network in self.networks for tensor in network.inputs):
            if place < tensor.size:
                return tensor.element(place)
            place -= tensor.size
        raise IndexError(number)


def read_query(path: str | Path) -> Query:
    """The query of a file, plain or gz; anything that is wrong with it is a LingraftError that names the line."""
    path = Path(path)
    collecting = gc.isenabled()
    gc.disable()  # files make millions of tuples, none of them garbage, which would be looked through again and again
    try:
        text = read_text(path)
        stated = version(text)
        if stated is None:
            return _read_1(text)
        if not stated.startswith("2."):
            raise LingraftError(f"is of VNN-LIB {stated}; lingraft reads 1.0 and 2.0.")
        return _Reader2(stated).read(text)
    except LingraftError as error:
        raise error if str(path) in str(error) else LingraftError(f"{path}, {error}") from error
    finally:
        if collecting:
            gc.enable()


# Version 1.0


def _read_1(text: str) -> Query:
    declared: dict[str, int] = {}

    def resolve(word: str, line: int) -> Variable | None:
        if word in declared:
            number = int(word[2:])
            return number if word[0] == "X" else -1 - number
        if _VARIABLE.fullmatch(word):
            raise LingraftError(f"line {line}: {word} is not declared before it is used.")
        return None

    query, scope = Query("1.0", []), Scope(resolve, _RELATIONS_1)
    for group in statements(text):
        if isinstance(group, Bound):
            query.alone.append(scope.bound(*group))
        elif isinstance(group, Declaration) or group.head == "declare-const":
            _declare_1(group, declared)
        elif group.head == "assert" and len(group.items) == 2:
            _assert(query, normal_form(group.items[1], group.line, scope))
        else:
            raise unknown(group, group.line)
    tensors = {letter: Tensor(letter, "real", (_counted(declared, letter),)) for letter in "XY"}
    query.networks.append(DeclaredNetwork("", (tensors["X"],), (), (tensors["Y"],)))
    query.copies = np.arange(tensors["X"].size)
    return query


def _declare_1(group: Group | Declaration, declared: dict[str, int]) -> None:
    if isinstance(group, Declaration):
        name = group.name
    elif [*group.items[:1], *group.items[2:]] == ["declare-const", "Real"] and _VARIABLE.fullmatch(str(group.items[1])):
        name = str(group.items[1])
    else:
        raise LingraftError(f"line {group.line}: expected (declare-const X_0 Real) with X_ for inputs, Y_ for outputs.")
    if name in declared:
        raise LingraftError(f"line {group.line}: {name} was declared before, on line {declared[name]}.")
    declared[name] = group.line


def _counted(declared: Iterable[str], letter: str) -> int:
    names = {name for name in declared if name[0] == letter}
    missing = next((i for i in range(len(names)) if f"{letter}_{i}" not in names), None)
    if missing is not None:
        raise LingraftError(f"{letter}_{missing} is not declared although there are {len(names)} of its kind.")
    return len(names)


def _assert(query: Query, normal: Normal) -> None:
    if len(normal) == 1:
        query.alone.extend(normal[0])
    else:
        query.disjunctions.append(normal)


# Version 2.0


class _Reader2:
    """Reads a text of version 2.0 from beginning to end."""

    def __init__(self, stated: str):
        self.query, self.scope = Query(stated, []), Scope(self.resolve, _RELATIONS_2)
        #: each tensor with the variable of its first element
        self.tensors: dict[str, tuple[Tensor, Variable]] = {}
        self.counts = {"input": 0, "computed": 0}
        #: pairs of declared inputs that are equal
        self.equal: list[tuple[int, int]] = []

    def read(self, text: str) -> Query:
        query, started = self.query, False
        for group in statements_2(text):
            if isinstance(group, Bound):
                query.alone.append(self.scope.bound(*group))
            elif isinstance(group, Declaration):
                raise unknown("declare-const", group.line)
            elif group.head == "vnnlib-version" and not started and not query.networks:
                started = True
            elif group.head == "declare-network":
                self._declare_network(group)
            elif group.head == "assert" and len(group.items) == 2:
                self._assert(prefixed(group.items[1]), group.line)
            else:
                raise unknown(group, group.line)
        if not query.networks:
            raise LingraftError("declares no network.")
        self._unite()
        return query

    def resolve(self, word: str, line: int) -> Variable | None:
        """The variable of X[0,1], or of X if that is a scalar."""
        found = ELEMENT.fullmatch(word)
        name, written = (found[1], found[2]) if found else (word, "")
        if name not in self.tensors:
            if _NAME.fullmatch(name):
                raise LingraftError(f"line {line}: {name} is not declared before it is used.")
            return None
        tensor, first = self.tensors[name]
        index = written.split(",") if written else []
        if len(index) != len(tensor.shape) or not all(map(_is_short, index)):
            raise LingraftError(f"line {line}: {word} is no element of {name}, whose shape is {list(tensor.shape)}.")
        number = 0
        for part, size in zip(index, tensor.shape, strict=True):
            if int(part) >= size:
                raise LingraftError(f"line {line}: {word} is outside of {name}, whose shape is {list(tensor.shape)}.")
            number = number * size + int(part)
        return first + number if first >= 0 else first - number

    def _assert(self, item: str | Group, line: int) -> None:
        """Conjunctions are asserted part by part; equal inputs are noted."""
        if isinstance(item, Group) and item.head == "and" and len(item.items) > 1:
            for part in item.items[1:]:
                self._assert(part, item.line)
            return
        if isinstance(item, Group) and item.head == "==":
            terms, constant = difference(item, self.resolve)
            if sorted(terms.values()) == [-1, 1] and not constant and min(terms) >= 0:
                first, second = terms
                self.equal.append((first, second))
                return
        _assert(self.query, normal_form(item, line, self.scope))

    # Declarations

    def _declare_network(self, group: Group) -> None:
        items = group.items[1:]
        if self.query.alone or self.query.disjunctions or self.equal:
            raise LingraftError(f"line {group.line}: networks are declared before anything is asserted.")
        if not items or not isinstance(items[0], str) or not _NAME.fullmatch(items[0]):
            raise LingraftError(f"line {group.line}: declare-network needs a name.")
        name, like, same = items[0], None, False
        if any(name == network.name for network in self.query.networks) or name in self.tensors:
            raise LingraftError(f"line {group.line}: {name} was declared before.")
        found: dict[str, list[Tensor]] = {"declare-input": [], "declare-hidden": [], "declare-output": []}
        for item in items[1:]:
            if not isinstance(item, Group):
                raise unknown(item, group.line)
            if item.head in ("equal-to", "isomorphic-to"):
                if like is not None or any(found.values()):
                    raise LingraftError(f"line {item.line}: {item.head} comes once, before inputs and outputs.")
                like, same = self._other_network(item), item.head == "equal-to"
            elif item.head in found:
                kinds = list(found)
                if any(found[kind] for kind in kinds[kinds.index(item.head) + 1 :]):
                    raise LingraftError(f"line {item.line}: inputs come first, then hidden values, then outputs.")
                found[item.head].append(self._tensor(item))
            else:
                raise unknown(item, item.line)
        inputs, hidden, outputs = map(tuple, found.values())
        if not inputs or not outputs:
            raise LingraftError(f"line {group.line}: network {name} needs an input and an output.")
        for tensors in (inputs, outputs):  # those without a name are found by their place
            if len({tensor.onnx is None for tensor in tensors}) > 1:
                raise LingraftError(
                    f"line {group.line}: of network {name}, some tensors say their names in the ONNX file and others do"
                    " not. Name all inputs or none, and all outputs or none."
                )
        self.query.networks.append(DeclaredNetwork(name, inputs, hidden, outputs, like, same))

    def _other_network(self, group: Group) -> str:
        other = group.items[1] if len(group.items) == 2 else None
        if not isinstance(other, str) or not any(other == network.name for network in self.query.networks):
            raise LingraftError(f"line {group.line}: {group.head} needs the name of a network declared before.")
        return other

    def _tensor(self, group: Group) -> Tensor:
        kind, words = group.head, group.items[1:]
        typed = ELEMENT.fullmatch(words[1]) if 2 <= len(words) <= 3 and isinstance(words[1], str) else None
        quoted = words[2] if len(words) == 3 else None
        name = words[0] if words else ""
        if (
            typed is None
            or not isinstance(name, str)
            or not _NAME.fullmatch(name)
            or not (quoted is None or (isinstance(quoted, str) and quoted[0] == quoted[-1] == '"' and len(quoted) > 2))
        ):
            raise LingraftError(f'line {group.line}: expected ({kind} NAME TYPE [SHAPE]), and maybe "NAME IN ONNX".')
        if kind == "declare-hidden" and quoted is None:
            raise LingraftError(f"line {group.line}: hidden value {name} needs its name in the ONNX file.")
        if name in self.tensors or any(name == network.name for network in self.query.networks):
            raise LingraftError(f"line {group.line}: {name} was declared before.")
        if typed[1].lower() not in _TYPES:
            raise LingraftError(
                f"line {group.line}: values of type {typed[1]} are not supported, only {', '.join(_TYPES)}."
            )
        sizes = typed[2].split(",") if typed[2] else []
        if not all(map(_is_short, sizes)) or not all(map(int, sizes)):
            raise LingraftError(f"line {group.line}: [{typed[2][:40]}] is no shape.")
        tensor = Tensor(name, typed[1], tuple(map(int, sizes)), None if quoted is None else str(quoted)[1:-1])
        which = "input" if kind == "declare-input" else "computed"
        first = self.counts[which]
        self.counts[which] += tensor.size
        if sum(self.counts.values()) > MAX_ELEMENTS:
            raise LingraftError(f"line {group.line}: more than {MAX_ELEMENTS:,} values are declared.")
        self.tensors[name] = tensor, first if which == "input" else -1 - first
        return tensor

    # Equal inputs

    def _unite(self) -> None:
        """Number the different inputs, and rewrite the constraints in them."""
        root = np.arange(self.counts["input"])

        def find(number: int) -> int:
            while root[number] != number:
                root[number] = root[root[number]]
                number = int(root[number])
            return number

        for first, second in self.equal:
            low, high = sorted((find(first), find(second)))
            root[high] = low
        roots = np.array([find(number) for number in range(len(root))]) if self.equal else root
        different, self.query.copies = np.unique(roots, return_inverse=True)
        if len(different) == len(root):
            return
        self._rewrite()

    def _rewrite(self) -> None:
        query, numbers = self.query, self.query.copies.tolist()

        def rewritten(atoms: Iterable[Atom]) -> tuple[Atom, ...] | None:
            """The conjunction; None if it cannot be true."""
            found = []
            for atom in atoms:
                terms: dict[Variable, Fraction] = {}
                for variable, factor in atom.terms:
                    number = numbers[variable] if variable >= 0 else variable
                    terms[number] = terms.get(number, Fraction()) + Fraction(factor)
                left = tuple((variable, exactly(factor, atom.line)) for variable, factor in terms.items() if factor)
                if left:
                    found.append(atom._replace(terms=left))
                elif atom.constant > 0 or (atom.strict and atom.constant == 0):
                    return None
            return tuple(found)

        alone = rewritten(query.alone)
        if alone is None:
            query.disjunctions.append([])  # never true
        query.alone = list(alone or ())
        query.disjunctions = [
            [atoms for atoms in map(rewritten, normal) if atoms is not None] for normal in query.disjunctions
        ]


def _is_short(number: str) -> bool:
    return 0 < len(number) < 10
