"""One generation inside the engine: what was asked, how far it is, what came out."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from shared.sampling import SamplingParams
from workers.engine.logprobs import TokenLogprob
from workers.engine.prefix_keys import PrefixKey
from workers.engine.structured import Constraint

if TYPE_CHECKING:
    from workers.engine.model_runner import KvBlock

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What `Engine.submit` takes. `priority` 0 is served first; `deadline` is a `time.monotonic()` value.

    KV of a common prompt prefix is shared between requests of the same `cache_salt` only. `constraint` is what a
    `GrammarCompiler` makes of `params`; it serves one request.
    """

    id: str
    prompt_ids: Ids[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    deadline: float | None = None
    cache_salt: str = ""
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """The finished generation.

    `token_ids` leaves out the end token; with a stop string it keeps the tokens that spelled it, while `text` ends
    before it. `completion_tokens` counts `token_ids`. Times are wall seconds: waiting for a slot, computing the
    prompt, from the first token to the last, and from arrival to the first token. `logprobs` has an entry for each of
    `token_ids`, if asked for. `alternatives` are the other outputs of a beam search with `n` above 1.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_s: float
    prefill_s: float
    decode_s: float
    first_token_s: float
    logprobs: tuple[TokenLogprob, ...] | None = None
    alternatives: tuple["GenerationOutput", ...] = ()


@dataclass(eq=False, slots=True)
class Sequence:
    """Runtime state of one generation. Identity is what compares: an id may come back after it was cancelled."""

    request: GenerationRequest
    arrived_at: float
    prompt_ids: tuple[int, ...] = field(init=False)
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    num_computed_tokens: int = 0
    admitted_at: float = 0.0
    first_token_at: float = 0.0
    prefill_s: float = 0.0
    finished: bool = False
    arrival: int = 0
    prefix_keys: tuple[PrefixKey, ...] = ()
    cached_tokens: int = 0
    preemptions: int = 0
    swapped_kv: "KvBlock | None" = None

    def __post_init__(self) -> None:
        """Take a copy of the prompt: the caller may reuse its list."""
        self.prompt_ids = tuple(self.request.prompt_ids)

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the KV cache."""
        return self.num_computed_tokens >= len(self.prompt_ids)

    @property
    def reserved_tokens(self) -> int:
        """Tokens its row may come to hold."""
        return len(self.prompt_ids) + self.request.params.max_tokens

    @property
    def swap_tokens(self) -> int:
        """Tokens whose KV must be kept if it is preempted: none before it decodes."""
        return self.num_computed_tokens if self.prefilled else 0

    @property
    def urgency(self) -> tuple[int, float]:
        """Sort key of admission: priority, then deadline."""
        deadline = self.request.deadline
        return self.request.priority, float("inf") if deadline is None else deadline

    def output(self, text: str, finish_reason: FinishReason, now: float) -> GenerationOutput:
        """Return the finished generation; `now` is the time of its last token."""
        return GenerationOutput(
            token_ids=tuple(self.output_ids),
            text=text,
            finish_reason=finish_reason,
            prompt_tokens=len(self.prompt_ids),
            cached_tokens=self.cached_tokens,
            completion_tokens=len(self.output_ids),
            queue_s=self.admitted_at - self.arrived_at,
            prefill_s=self.prefill_s,
            decode_s=now - self.first_token_at,
            first_token_s=self.first_token_at - self.arrived_at,
            logprobs=tuple(self.logprobs) if self.request.params.logprobs else None,
        )
