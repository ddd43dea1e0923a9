"""One beam search, from a prompt to its outputs, driven step by step in the genai child."""

import time
from collections.abc import Iterator
from dataclasses import replace

from shared.adapters import adapter_file
from shared.sampling import SamplingParams
from workers.engine.detokenizer import Decode
from workers.engine.genai_process import GenaiProcess, check_memory
from workers.engine.output_processor import Generation
from workers.engine.sequence import GenerationOutput, Sequence


def search_options(prompt: int, params: SamplingParams) -> dict[str, float | int | bool]:
    """Return genai's search options; its lengths count the prompt. Every one is given: its defaults are not ours."""
    return {
        "batch_size": 1,
        "num_beams": params.num_beams,
        "num_return_sequences": params.n,
        "length_penalty": params.length_penalty,
        "early_stopping": True,
        "do_sample": False,
        "max_length": prompt + params.max_tokens,
        "min_length": prompt + params.min_tokens,
        "repetition_penalty": params.repetition_penalty,
        # Beams are reordered by copying, which shared buffers do not allow.
        "past_present_share_buffer": False,
    }


class BeamSearch:
    """Grows `num_beams` outputs of one sequence at once. Between two steps the caller may stop."""

    def __init__(self, process: GenaiProcess, decode: Decode, sequence: Sequence) -> None:
        """Take a sequence whose parameters ask for beams."""
        self._process, self._decode, self._sequence = process, decode, sequence
        self._params = sequence.request.params

    def steps(self) -> Iterator[None]:
        """Compute the prompt, then a token of every beam; yield after each, and stop when the search is over.

        Raises:
            GenerationFailedError: the memory it takes is not free now.
            GenaiCallError: the runtime failed.
            GenaiChildError: the child ended.
        """
        self._start()
        yield
        over = False
        while not over:
            over = self._process.call("step_beams").fields["result"]
            self._sequence.first_token_at = self._sequence.first_token_at or time.monotonic()
            yield

    def output(self) -> GenerationOutput:
        """Return the best output, the other `n` - 1 as its alternatives."""
        ids = self._process.call("finish_beams", count=self._params.n).fields["result"]
        best, *others = [self._replay(output) for output in ids]
        return replace(best, alternatives=tuple(others))

    def _start(self) -> None:
        prompt, params, info = list(self._sequence.prompt_ids), self._params, self._process.info
        needed = info.beam_bytes(params.num_beams, len(prompt), params.max_tokens)
        check_memory(needed, f"a beam search of {params.num_beams} x {len(prompt) + params.max_tokens} tokens")
        adapter, began = params.adapter, time.monotonic()
        self._process.call(
            "start_beams",
            ids=prompt,
            options=search_options(len(prompt), params),
            adapter=adapter,
            file=str(adapter_file(info.directory, adapter)) if adapter else "",
        )
        self._sequence.prefill_s = time.monotonic() - began

    def _replay(self, ids: list[int]) -> GenerationOutput:
        """Cut one output at its stop strings, as if its tokens came one by one."""
        info, now = self._process.info, time.monotonic()
        sequence = replace(self._sequence, output_ids=[], logprobs=[])
        generation = Generation(sequence, self._decode, info.vocab_size, info.eos_token_ids)
        # A search ends an output at the end token and leaves it out.
        for token_id in [*ids, min(info.eos_token_ids)]:
            output = generation.append(token_id, None, now)
            if output is not None:
                return output
        raise RuntimeError("an output of the search neither ends nor is as long as asked")
