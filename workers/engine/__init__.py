"""The engine as a library: continuous batching of generations on CPU cores.

Importing this loads no runtime: pin the process to its cores first, then import `workers.engine.continuous_runner`.
"""

from workers.engine.engine import Engine, EngineConfig
from workers.engine.engine_stats import EngineStats
from workers.engine.model_runner import ModelRunner
from workers.engine.sequence import GenerationOutput, GenerationRequest

__all__ = ["Engine", "EngineConfig", "EngineStats", "GenerationOutput", "GenerationRequest", "ModelRunner"]
