"""One small matrix product, written in LLVM's own vectors: `C = A @ B` with C held in registers.

Compilers do not keep a block of sums in registers by themselves, and attention is nothing but such products: scores
are queries times keys, outputs are weights times values. Every sum adds its terms in order of `k` with one fused
multiply-add each, so a result never depends on how many rows share a call.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_BYTES = ir.VectorType(ir.IntType(8), LANES)
_INTS = ir.VectorType(ir.IntType(32), LANES)
_FMA = ir.FunctionType(_VECTOR, [_VECTOR] * 3)

Builder = Any  # llvmlite ships no types


class _Product:
    """Emits the code of one product. Sizes are fixed here, addresses and strides are values of the compiled code."""

    def __init__(self, builder: Builder, rows: int, columns: int) -> None:
        self._builder, self._rows, self._vectors = builder, rows, columns // LANES
        self._sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(self._vectors)] for _ in range(rows)]
        self._fma = cgutils.get_or_insert_function(builder.module, _FMA, f"llvm.fma.v{LANES}f32")

    def emit(self, left: "_Matrix", right: "_Matrix", target: "_Matrix", terms: Any, more: Any) -> None:  # noqa: ANN401  # llvmlite ships no types
        self._start(target, more)
        with cgutils.for_range(self._builder, terms) as loop:
            self._add_term(left, right, loop.index)
        for row, totals in enumerate(self._sums):
            for vector, total in enumerate(totals):
                target.store(row, vector * LANES, self._builder.load(total))

    def _start(self, target: "_Matrix", more: Any) -> None:  # noqa: ANN401  # as above
        builder = self._builder
        with builder.if_else(builder.icmp_signed("!=", more, ir.Constant(more.type, 0))) as (continued, fresh):
            with continued:
                self._set_sums(target.load)
            with fresh:
                self._set_sums(lambda _row, _column: ir.Constant(_VECTOR, [0.0] * LANES))

    def _set_sums(self, value: Callable[[int, int], Any]) -> None:
        for row, totals in enumerate(self._sums):
            for vector, total in enumerate(totals):
                self._builder.store(value(row, vector * LANES), total)

    def _add_term(self, left: "_Matrix", right: "_Matrix", term: Any) -> None:  # noqa: ANN401  # as above
        builder = self._builder
        factors = [left.broadcast(row, term) for row in range(self._rows)]
        for vector in range(self._vectors):
            # One vector of B at a time: with all of them loaded first, the sums would no longer fit the registers.
            values = right.load(term, vector * LANES)
            for row, factor in enumerate(factors):
                total = self._sums[row][vector]
                builder.store(builder.call(self._fma, [factor, values, builder.load(total)]), total)


class _Matrix:
    """A row-major matrix at an address; `stride` elements lie between rows."""

    def __init__(self, builder: Builder, address: Any, stride: Any, *, quantised: bool = False) -> None:  # noqa: ANN401  # as above
        self._builder, self._stride, self._quantised = builder, stride, quantised
        element = ir.IntType(8) if quantised else _FLOAT
        self._base = builder.inttoptr(address, element.as_pointer())

    def _pointer(self, row: Any, column: Any) -> Any:  # noqa: ANN401  # as above
        index = self._stride.type
        row = ir.Constant(index, row) if isinstance(row, int) else row
        column = ir.Constant(index, column) if isinstance(column, int) else column
        return self._builder.gep(self._base, [self._builder.add(self._builder.mul(row, self._stride), column)])

    def broadcast(self, row: int, column: Any) -> Any:  # noqa: ANN401  # as above
        builder, undefined = self._builder, ir.Constant(_VECTOR, ir.Undefined)
        value = builder.load(self._pointer(row, column))
        first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, undefined, ir.Constant(_INTS, [0] * LANES))

    def load(self, row: Any, column: int) -> Any:  # noqa: ANN401  # as above
        builder, pointer = self._builder, self._pointer(row, column)
        if not self._quantised:
            return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)
        values = builder.load(builder.bitcast(pointer, _BYTES.as_pointer()), align=1)
        return builder.sitofp(builder.sext(values, _INTS), _VECTOR)

    def store(self, row: int, column: int, values: Any) -> None:  # noqa: ANN401  # as above
        pointer = self._builder.bitcast(self._pointer(row, column), _VECTOR.as_pointer())
        self._builder.store(values, pointer).align = 4


def product(rows: int, columns: int, *, quantised: bool) -> Callable[..., None]:
    """Return a function for compiled code: `(a, a_stride, b, b_stride, c, c_stride, terms, more)`.

    It writes `C[rows, columns] = A[rows, terms] @ B[terms, columns]`, or adds that to C where `more` is not 0. A, B and
    C are addresses, strides count elements; A and C are float32, B is int8 where `quantised`, else float32.
    `rows * columns` of at most 96 fit the sixteen vector registers of AVX2; `columns` is a multiple of 8.
    """

    @intrinsic
    def call(context: Any, a: Any, lda: Any, b: Any, ldb: Any, c: Any, ldc: Any, terms: Any, more: Any) -> Any:  # noqa: ANN401, ARG001, PLR0913, PLR0917  # numba's protocol
        def generate(context: Any, builder: Builder, _signature: Any, values: Any) -> Any:  # noqa: ANN401  # the same
            a, a_stride, b, b_stride, c, c_stride, terms, more = values
            _Product(builder, rows, columns).emit(
                _Matrix(builder, a, a_stride),
                _Matrix(builder, b, b_stride, quantised=quantised),
                _Matrix(builder, c, c_stride),
                terms,
                more,
            )
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), generate

    function: Callable[..., None] = call
    return function
