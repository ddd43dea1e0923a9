"""`python -m tests.fake_worker CORES STEP_SECONDS`: a real worker process around the fake model.

Jobs for onnxruntime-genai run if the model's directory has a graph.
"""

import sys

from shared import structured_logging
from shared.model_registry import ModelVersion
from shared.process import harden
from shared.settings import Settings, get_settings
from tests.fake_model import ByteTokenizer, SteppingRunner
from tests.unit.engine.fake_runner import decode
from workers.app import create_worker
from workers.engine import Engine
from workers.engine.decoder_config import CONFIG_FILE
from workers.engine.genai_engine import GenaiEngine
from workers.engine.router import Router
from workers.engine.sleeping_runner import SleepingRunner
from workers.loaded_model import LoadedModel
from workers.stop_signals import StopSignals
from workers.topology import parse_cores, pin


def main(cores: str, step_seconds: str) -> int:
    def load(version: ModelVersion, settings: Settings, *, threads: int) -> LoadedModel:  # noqa: ARG001  # the seam's names
        runner = SleepingRunner(lambda: SteppingRunner(settings.max_num_seqs, float(step_seconds)))
        engine = Engine(runner, decode)
        has_genai = (version.path / CONFIG_FILE).is_file()
        return LoadedModel(Router(GenaiEngine(version.path, decode), engine) if has_genai else engine, ByteTokenizer())

    harden()
    structured_logging.configure("worker", level=get_settings().log_level)
    signals = StopSignals()
    signals.install()
    pin(parse_cores(cores))
    return 0 if create_worker(get_settings(), parse_cores(cores), signals, load=load).run() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
