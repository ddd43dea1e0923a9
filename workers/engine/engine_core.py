"""The engine without threads or futures: schedule, run, postprocess."""

import time
from collections.abc import Iterable, Iterator

from shared.errors import ConfigurationError, DeadlineExceededError
from workers.engine.detokenizer import Decode
from workers.engine.engine_stats import EngineStats
from workers.engine.model_runner import ModelRunner
from workers.engine.output_processor import Finished, OutputProcessor, row_failed
from workers.engine.prefix_cache import PrefixCache
from workers.engine.prefix_keys import prefix_keys
from workers.engine.scheduler import Scheduler
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sequence import GenerationRequest, Sequence
from workers.engine.step_executor import RowFailed, RowOutcome, StepExecutor


def _check_fit(config: SchedulerConfig, runner: ModelRunner) -> None:
    if config.max_num_seqs > runner.max_num_seqs:
        raise ConfigurationError(
            f"max_num_seqs is {config.max_num_seqs} but the runner has {runner.max_num_seqs} rows", field="max_num_seqs"
        )
    if config.max_kv_tokens is not None and config.max_kv_tokens < runner.max_model_len:
        raise ConfigurationError(
            f"max_kv_tokens is {config.max_kv_tokens}, less than one sequence of {runner.max_model_len} tokens may"
            " take; raise it or lower max_model_len",
            field="max_kv_tokens",
        )


class EngineCore:
    """Scheduler, executor and output processor of one runner. Not thread safe; one thread calls everything."""

    def __init__(self, runner: ModelRunner, decode: Decode, config: SchedulerConfig) -> None:
        """Compose them around `runner`.

        Raises:
            ConfigurationError: the configuration does not fit the runner.
        """
        _check_fit(config, runner)
        self.config, self._runner = config, runner
        self._stats = EngineStats(config.max_num_seqs)
        self._prefixes = PrefixCache(config.prefix_cache_bytes)
        self._scheduler = Scheduler(config, self._prefixes)
        self._executor = StepExecutor(runner, self._prefixes, self._stats)
        self._outputs = OutputProcessor(decode, runner.vocab_size, runner.eos_token_ids)

    def sequence(self, request: GenerationRequest, now: float) -> Sequence:
        """Return a new sequence for `request`. Any thread may call this."""
        if not self.config.prefix_cache_bytes:
            return Sequence(request, now)
        keys = prefix_keys(request.prompt_ids, self.config.prefill_chunk_size, request.cache_salt)
        return Sequence(request, now, prefix_keys=keys)

    def add(self, sequence: Sequence) -> None:
        """Queue `sequence`."""
        self._scheduler.add(sequence)

    def leave(self, sequences: Iterable[Sequence]) -> None:
        """Take `sequences` out, wherever they are."""
        gone = list(sequences)
        moves = self._scheduler.remove(gone)
        for sequence in gone:
            self._outputs.forget(sequence)
        for move in moves:
            self._runner.move(move.source, move.target, move.tokens)

    def leave_admitted(self) -> list[Sequence]:
        """Take out and return all that have run, preempted ones included: their rows can no longer be trusted."""
        gone = [*self._scheduler.running, *(sequence for sequence in self._scheduler.waiting if sequence.admitted_at)]
        self.leave(gone)
        return gone

    def wait_time(self, now: float) -> float | None:
        """Return the seconds until a step has work: 0 when it has, None when nobody is here."""
        return self._scheduler.wait_time(now)

    def step(self, now: float) -> Iterator[list[Finished]]:
        """Run one step, prompt chunks and decode rows together; yield those that end, each time before they leave."""
        late = DeadlineExceededError("the job's deadline passed before it finished")
        yield from self._end([Finished(sequence, late) for sequence in self._scheduler.expired(now)])
        batch = self._scheduler.schedule(now)
        decodes = self._scheduler.decodes()
        prompts = len({chunk.sequence for chunk in batch.prefills})
        if decodes or prompts:
            self._stats.count_step(len(decodes), prompts, busy=bool(self._scheduler.waiting))
        yield from self._end(self._postprocess(self._executor.run(batch, decodes)))

    def forget_prefixes(self) -> None:
        """Give up the KV kept for reuse."""
        self._prefixes.clear()

    def stats(self) -> EngineStats:
        """Return a snapshot of the counters; warm-up is not in them. Any thread may call this."""
        return self._stats.snapshot(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            prefix_blocks=len(self._prefixes),
            prefix_bytes=self._prefixes.bytes,
            prefix_evictions=self._prefixes.evictions,
        )

    def close(self) -> None:
        """Forget the KV of prompts and free the model."""
        self._prefixes.clear()
        self._runner.close()

    def _postprocess(self, outcomes: Iterable[RowOutcome]) -> list[Finished]:
        """Choose the next token of every row computed."""
        finished: list[Finished] = []
        for outcome in outcomes:
            if isinstance(outcome, RowFailed):
                finished.append(Finished(outcome.sequence, row_failed(outcome.error)))
            else:
                finished += self._outputs.process(outcome.sequences, outcome.logits, time.monotonic())
                self._stats.generated_tokens += len(outcome.sequences)
        self._stats.count_finished(finished)
        return finished

    def _end(self, finished: list[Finished]) -> Iterator[list[Finished]]:
        if finished:
            yield finished
            self.leave(item.sequence for item in finished)
