"""What is measured: prompts made of ids alone, so that every engine computes exactly the same tokens."""

from dataclasses import dataclass

import numpy as np

SHARED_TOKENS = 400
SHARED_PREFIX_OUTPUT_TOKENS = 32
MIXED_MODEL_LEN = 600 + 128
SHARED_MODEL_LEN = SHARED_TOKENS + 150 + SHARED_PREFIX_OUTPUT_TOKENS


@dataclass(frozen=True, slots=True)
class BenchmarkJob:
    """A prompt and the number of tokens to generate, whatever they are (end-of-text is ignored)."""

    prompt_ids: tuple[int, ...]
    max_tokens: int


def _ids(seed: int, count: int) -> list[int]:
    return [int(value) for value in np.random.default_rng(seed).integers(300, 40000, size=count)]


def mixed_jobs(count: int, seed: int = 7) -> list[BenchmarkJob]:
    """Return jobs with prompts of 30-600 tokens and outputs of 16-128: stretches of one sequence of random ids."""
    random, text = np.random.default_rng(seed), _ids(1, 4096)
    jobs = []
    for _ in range(count):
        length, new, start = int(random.integers(30, 601)), int(random.integers(16, 129)), int(random.integers(0, 3000))
        jobs.append(BenchmarkJob(tuple(text[start : start + length]), new))
    return jobs


def shared_prefix_jobs(count: int, seed: int = 11) -> list[BenchmarkJob]:
    """Return documents of 50-150 tokens behind one instruction of 400 tokens, 32 output tokens each."""
    random, instruction = np.random.default_rng(seed), _ids(2, SHARED_TOKENS)
    lengths = [int(random.integers(50, 151)) for _ in range(count)]
    return [
        BenchmarkJob((*instruction, *_ids(1000 + index, length)), SHARED_PREFIX_OUTPUT_TOKENS)
        for index, length in enumerate(lengths)
    ]


def workload(name: str, count: int) -> list[BenchmarkJob]:
    """Return `count` jobs of the workload called `name`: `mixed` or `shared-prefix`."""
    return {"mixed": mixed_jobs, "shared-prefix": shared_prefix_jobs}[name](count)


def curve_prompts(rows: int, tokens: int) -> list[list[int]]:
    """Return `rows` prompts of `tokens` ids of which no two share a prefix."""
    return [[300 + (position * 7 + row * 131) % 40000 for position in range(tokens)] for row in range(rows)]


def prompt_tokens(jobs: list[BenchmarkJob]) -> int:
    """Return the sum of all prompts' tokens."""
    return sum(len(job.prompt_ids) for job in jobs)


def output_tokens(jobs: list[BenchmarkJob]) -> int:
    """Return the sum of all tokens to generate."""
    return sum(job.max_tokens for job in jobs)
