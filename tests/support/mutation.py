"""Small wrong changes to Python source, one at a time: what a test must notice.

Each change is one that a tired author makes: a boundary off by one, a condition turned round or forgotten, a
constant, an operator, a result, a statement or an entry of a table left out.  What no run can show is left
alone: docstrings, annotations, decorators, bases of classes, `__slots__`, and sentences for people.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TypeVar

SHOWN_CHARS = 80

Node = TypeVar("Node")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_UNSEEN_FIELDS = frozenset({"annotation", "returns", "decorator_list", "bases"})
_UNSEEN_NAMES = frozenset({"__slots__", "__all__"})
_OF_TYPES = frozenset({"Literal", "NewType", "TypeVar", "cast"})
_PROSE = re.compile(r"[a-z] | [a-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place in a tree: a field of a node, or one item of a field that is a list."""

    owner: ast.AST
    field: str
    index: int | None = None

    def put(self, node: object) -> None:
        if self.index is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.index] = node


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change.  `where` is the dotted name of the function or class around it, empty at the top."""

    module: str
    path: Path
    tree: ast.Module
    slot: Slot
    old: ast.AST
    new: ast.AST
    line: int
    where: str
    what: str

    def code(self) -> CodeType:
        """The module with this change, compiled; the tree is afterwards as it was."""
        self.slot.put(self.new)
        try:
            return compile(ast.fix_missing_locations(self.tree), str(self.path), "exec", dont_inherit=True)
        finally:
            self.slot.put(self.old)


def read_mutations(path: Path, module: str) -> list[Mutation]:
    """Every change of the module `module` in the file `path`, in the order of the source."""
    walker = _Walker(path, module)
    walker.enter(walker.tree)
    return walker.found


class _Walker:
    """Goes through a module once and notes the changes of each node."""

    def __init__(self, path: Path, module: str) -> None:
        self.path = path
        self.module = module
        self.tree = ast.parse(path.read_bytes(), str(path))
        self.found: list[Mutation] = []
        self._scope: list[str] = []
        self._line = 1

    def enter(self, node: ast.AST) -> None:
        """The changes of what is inside `node`."""
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
        self._scope += names
        for slot, child in _children(node):
            if not _is_unseen(node, slot.field, child):
                self._visit(slot, child)
        del self._scope[len(self._scope) - len(names) :]

    def _visit(self, slot: Slot, node: ast.AST) -> None:
        self._line = getattr(node, "lineno", self._line)
        for new in _replacements(slot, node):
            self._note(slot, node, new)
        self.enter(node)

    def _note(self, slot: Slot, old: ast.AST, new: ast.AST) -> None:
        self.found.append(
            Mutation(
                module=self.module,
                path=self.path,
                tree=self.tree,
                slot=slot,
                old=old,
                new=ast.copy_location(new, old),
                line=self._line,
                where=".".join(self._scope),
                what=_difference(old, new),
            )
        )


def _difference(old: ast.AST, new: ast.AST) -> str:
    if isinstance(new, ast.Pass):
        return f"{_shown(old)} -> removed"
    before, after = _entries(old), _entries(new)
    if len(before) <= len(after):
        return f"{_shown(old)} -> {_shown(new)}"
    kept = next((at for at, one in enumerate(after) if one is not before[at]), len(after))
    gone = before[kept]
    return f"without {_shown(gone) if gone else '**'}: {_shown(old)}"


def _entries(node: ast.AST) -> Sequence[ast.AST | None]:
    match node:
        case ast.Dict(keys=keys):
            return keys
        case ast.Set(elts=items) | ast.List(elts=items) | ast.Tuple(elts=items):
            return items
        case _:
            return ()


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."


def _children(node: ast.AST) -> Iterator[tuple[Slot, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield Slot(owner=node, field=field), value
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield Slot(owner=node, field=field, index=index), item


def _is_unseen(owner: ast.AST, field: str, node: ast.AST) -> bool:
    """Whether nothing inside `node` can matter to a run, or only to the words of a message."""
    if field in _UNSEEN_FIELDS or (isinstance(owner, ast.ClassDef) and field == "keywords"):
        return True
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in _UNSEEN_NAMES
        case ast.Call(func=ast.Name(id=name)) | ast.Subscript(value=ast.Name(id=name)):
            return name in _OF_TYPES
        case ast.Constant(value=str(text)):
            return _PROSE.search(text) is not None
        case _:
            return False


def _replacements(slot: Slot, node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of `node`, each a change of its own."""
    if _is_condition(slot) and isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.NamedExpr):
        yield ast.UnaryOp(op=ast.Not(), operand=node)
    match node:
        case ast.Constant(value=value):
            yield from _other_constants(value)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for index, operator in enumerate(ops):
                turned = [*ops[:index], _COMPARISONS[type(operator)](), *ops[index + 1 :]]
                yield ast.Compare(left=left, ops=turned, comparators=comparators)
        case ast.BoolOp(op=operator, values=values):
            for rest in _without_each(values):
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op=operator, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=right) if not (_is_text(left) or _is_text(right)):
            yield ast.BinOp(left=left, op=_OPERATORS[type(operator)](), right=right)
        case ast.Dict(keys=keys, values=values):
            for some_keys, some_values in zip(_without_each(keys), _without_each(values), strict=True):
                yield ast.Dict(keys=some_keys, values=some_values)
        case ast.Set(elts=items) if len(items) > 1:
            yield from map(ast.Set, _without_each(items))
        case ast.List(elts=items, ctx=ast.Load()):
            yield from (ast.List(elts=rest, ctx=ast.Load()) for rest in _without_each(items))
        case ast.Tuple(elts=items, ctx=ast.Load()) if _is_collection(slot):
            yield from (ast.Tuple(elts=rest, ctx=ast.Load()) for rest in _without_each(items))
        case ast.stmt():
            yield from _other_statements(node)


def _other_constants(value: object) -> Iterator[ast.AST]:
    match value:
        case bool():
            yield ast.Constant(value=not value)
        case int() | float():
            yield ast.Constant(value=value + 1)
        case str():
            yield ast.Constant(value="" if value else "mutant")
        case bytes():
            yield ast.Constant(value=b"" if value else b"mutant")


def _other_statements(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(value=ast.Constant(value=None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.AugAssign(target=target, op=operator, value=value) if not _is_text(value):
            yield ast.AugAssign(target=target, op=_OPERATORS[type(operator)](), value=value)
            yield ast.Pass()
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Delete() | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr()):
            yield ast.Pass()


def _without_each(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    return ([*nodes[:index], *nodes[index + 1 :]] for index in range(len(nodes)))


def _is_condition(slot: Slot) -> bool:
    return slot.field in ("test", "ifs", "guard")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_collection(slot: Slot) -> bool:
    """Whether a tuple here is a set of things, and not a row whose places have a meaning."""
    match slot.owner:
        case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign(target=ast.Name()) | ast.Compare() | ast.Call():
            return True
        case ast.For() | ast.comprehension() | ast.ExceptHandler() | ast.Starred():
            return True
        case _:
            return False
