"""From logits to tokens to finished outputs: sampling, end tokens, stop strings, lengths."""

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

import structlog

from shared.errors import GenerationFailedError, TokenmillError
from workers.engine.detokenizer import REPLACEMENT, Decode, Detokenizer
from workers.engine.logprobs import TokenLogprob
from workers.engine.model_runner import Logits
from workers.engine.sampler import SampledTokens, SequenceSampler, sample
from workers.engine.sequence import GenerationOutput, Sequence

log = structlog.get_logger(__name__)


def step_failed(error: Exception) -> GenerationFailedError:
    """Return the retryable error for a sequence whose step raised `error`; the words of `error` may quote input."""
    log.warning("sequence_failed", exc_info=error)
    return GenerationFailedError(f"a step of the engine failed for this job ({type(error).__name__}); retry it")


@dataclass(frozen=True, slots=True)
class Finished:
    """A sequence that leaves the engine, with its output or the error it ends with."""

    sequence: Sequence
    outcome: GenerationOutput | TokenmillError


class Generation:
    """What one sequence needs beyond the scheduler: its sampler, its text, the tokens that end it."""

    def __init__(self, sequence: Sequence, decode: Decode, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        """Begin where `sequence` begins."""
        params = sequence.request.params
        self.sequence, self.params = sequence, params
        self.end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos_token_ids)
        self.constraint = sequence.request.constraint
        self.sampler = SequenceSampler(params, sequence.prompt_ids, vocab_size, self.end_ids, self.constraint)
        self.detokenizer = Detokenizer(decode, params.stop) if params.stop else None
        self._decode = decode

    def append(self, token_id: int, logprob: TokenLogprob | None, now: float) -> GenerationOutput | None:
        """Take the next token; return the output if the generation ends with it."""
        sequence = self.sequence
        sequence.first_token_at = sequence.first_token_at or now
        if token_id in self.end_ids:
            return sequence.output(self._whole_text(), "stop", now)
        sequence.output_ids.append(token_id)
        if logprob is not None:
            sequence.logprobs.append(logprob)
        if self.constraint is not None and self.constraint.complete:
            return sequence.output(self._whole_text(), "stop", now)
        if self.detokenizer is not None:
            search = len(sequence.output_ids) > self.params.min_tokens
            text = self.detokenizer.append(token_id, search=search)
            if text is not None:
                return sequence.output(text, "stop", now)
        if len(sequence.output_ids) < self.params.max_tokens:
            return None
        return self._at_length(now)

    def _at_length(self, now: float) -> GenerationOutput:
        text = self.detokenizer.flush() if self.detokenizer is not None else None
        if text is not None:
            return self.sequence.output(text, "stop", now)
        # The cut may fall between the bytes of a character; half of one is no text.
        return self.sequence.output(self._whole_text().removesuffix(REPLACEMENT), "length", now)

    def _whole_text(self) -> str:
        return self._decode(self.sequence.output_ids) if self.sequence.output_ids else ""


class OutputProcessor:
    """Turns each row's logits into its next token and says who has finished."""

    def __init__(self, decode: Decode, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        """Take `decode` from token ids to text, and what the model ends with."""
        self._decode, self._vocab_size, self._eos_token_ids = decode, vocab_size, eos_token_ids
        self._generations: dict[Sequence, Generation] = {}

    def forget(self, sequence: Sequence) -> None:
        """Drop the state of a sequence that left."""
        self._generations.pop(sequence, None)

    def process(self, sequences: Many[Sequence], logits: Logits, now: float) -> Iterator[Finished]:
        """Give each of `sequences` its token from `logits` [rows, vocab]; yield those that end, or fail alone."""
        generations = [self._generation(sequence) for sequence in sequences]
        sampled = sample(logits, [generation.sampler for generation in generations])
        for index, generation in enumerate(generations):
            outcome = self._outcome(generation, sampled, index, now)
            if outcome is not None:
                yield Finished(generation.sequence, outcome)

    def _outcome(
        self, generation: Generation, sampled: SampledTokens, index: int, now: float
    ) -> GenerationOutput | TokenmillError | None:
        if index in sampled.faults:
            return row_failed(sampled.faults[index])
        if not sampled.finite[index]:
            return _not_finite()
        return self._append(generation, sampled.token_ids[index], sampled.logprobs.get(index), now)

    def _generation(self, sequence: Sequence) -> Generation:
        if sequence not in self._generations:
            self._generations[sequence] = Generation(sequence, self._decode, self._vocab_size, self._eos_token_ids)
        return self._generations[sequence]

    @staticmethod
    def _append(
        generation: Generation, token_id: int, logprob: TokenLogprob | None, now: float
    ) -> GenerationOutput | TokenmillError | None:
        try:
            return generation.append(token_id, logprob, now)
        except Exception as error:  # noqa: BLE001  # `decode` is the caller's; its fault ends this sequence alone
            return step_failed(error)


def row_failed(error: Exception) -> TokenmillError:
    """Return what a sequence ends with whose computation raised `error`."""
    return error if isinstance(error, TokenmillError) else step_failed(error)


def _not_finite() -> GenerationFailedError:
    return GenerationFailedError("the model computed logits that are not finite for this job; retry it")
