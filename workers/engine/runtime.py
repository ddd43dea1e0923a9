"""Imports onnxruntime with its environment set: both variables are read when the library or a model loads."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# The plain kernel beats the tiled one at the lengths served here: see benchmarks/decode.py.
os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")

import onnxruntime  # must follow the variables

__all__ = ["onnxruntime"]
