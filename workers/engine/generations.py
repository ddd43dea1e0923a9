"""The door to the engine: compiles constraints in the caller's thread and serves `n` outputs as one generation."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Protocol

from shared.errors import CancelledError, InvalidInputError, ModelUnsupportedError, TokenmillError
from workers.engine.sequence import GenerationOutput, GenerationRequest
from workers.engine.structured import GrammarCompiler, Vocabulary

GenerationFuture = Future[GenerationOutput]


class GeneratingEngine(Protocol):
    """What serves single generations. Any thread may call it."""

    def submit(self, request: GenerationRequest) -> GenerationFuture:
        """Queue a generation."""
        ...

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End a generation with `error`; return whether it was still unfinished."""
        ...


class _Group:
    """The sequences of one request. The first failure fails them all."""

    def __init__(self, size: int, abort: Callable[[TokenmillError], None]) -> None:
        self.future = GenerationFuture()
        self.future.set_running_or_notify_cancel()
        self._outputs: dict[int, GenerationOutput] = {}
        self._size, self._abort = size, abort
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        return self._error

    def end(self, error: BaseException) -> bool:
        """Fail, unless everything is there already."""
        with self._lock:
            first = self._error is None and len(self._outputs) < self._size
            self._error = self._error or error
        if first:
            self._abort(error if isinstance(error, TokenmillError) else CancelledError("another output failed"))
            self.future.set_exception(error)
        return first

    def take(self, index: int, part: GenerationFuture) -> None:
        error = part.exception()
        if error is not None:
            self.end(error)
            return
        with self._lock:
            self._outputs[index] = part.result()
            whole = self._error is None and len(self._outputs) == self._size
        if whole:
            first, *others = (self._outputs[position] for position in range(self._size))
            self.future.set_result(replace(first, alternatives=tuple(others)))


class Generations:
    """Submits to `engine`. Thread safe; ends what it has begun, all outputs of a request together."""

    def __init__(self, engine: GeneratingEngine, vocabulary: Vocabulary | None) -> None:
        """Take the model's `vocabulary`; without one, nothing that needs it is served."""
        self._engine = engine
        self._compiler = None if vocabulary is None else GrammarCompiler(vocabulary)
        self._groups: dict[str, _Group] = {}
        self._lock = threading.Lock()

    def submit(self, request: GenerationRequest) -> GenerationFuture:
        """Queue a generation; its output has the other `n` - 1 as `alternatives`. Fails as the engine's does.

        Raises:
            InvalidInputError: what the engine refuses; or the constraint cannot be enforced.
            ModelUnsupportedError: the model's tokenizer allows neither constraints nor log probabilities.
        """
        params = request.params
        if self._compiler is None and (params.constrained or params.logprobs):
            raise ModelUnsupportedError("this model serves no response_format, regex, choice or logprobs; drop it")
        if params.n == 1 or params.num_beams > 1:
            return self._engine.submit(self._compiled(request))
        return self._submit_each(request)

    def cancel(self, request_id: str) -> bool:
        """End a generation with `CancelledError`; return whether it was still unfinished."""
        return self.abort(request_id, CancelledError("the job was cancelled"))

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End all outputs of a generation with `error`; return whether one was still unfinished."""
        with self._lock:
            group = self._groups.get(request_id)
        return self._engine.abort(request_id, error) if group is None else group.end(error)

    def _compiled(self, request: GenerationRequest) -> GenerationRequest:
        if self._compiler is None or not request.params.constrained:
            return request
        return replace(request, constraint=self._compiler.constraint(request.params))

    def _submit_each(self, request: GenerationRequest) -> GenerationFuture:
        parts = [
            self._compiled(replace(request, id=f"{request.id}#{index}", params=request.params.of_choice(index)))
            for index in range(request.params.n)
        ]
        group = self._register(request.id, [part.id for part in parts])
        for index, part in enumerate(parts):
            if not self._submit_part(group, index, part):
                break
        return group.future

    def _register(self, request_id: str, part_ids: list[str]) -> _Group:
        def abort(error: TokenmillError) -> None:
            for part_id in part_ids:
                self._engine.abort(part_id, error)

        group = _Group(len(part_ids), abort)
        with self._lock:
            if request_id in self._groups:
                raise InvalidInputError(f"a generation with the id {request_id} is running already", field="id")
            self._groups[request_id] = group
        group.future.add_done_callback(partial(self._forget, request_id))
        return group

    def _submit_part(self, group: _Group, index: int, part: GenerationRequest) -> bool:
        try:
            future = self._engine.submit(part)
        except TokenmillError as error:
            group.end(error)
            return False
        future.add_done_callback(partial(group.take, index))
        if group.error is not None:  # ended while this part was on its way
            self._engine.abort(part.id, CancelledError("another output failed"))
            return False
        return True

    def _forget(self, request_id: str, _: GenerationFuture) -> None:
        with self._lock:
            self._groups.pop(request_id, None)
