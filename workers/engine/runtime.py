"""Imports onnxruntime with its environment set: both variables are read when the library or a model loads."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# Measured on AVX2, 135M parameters: the plain attention kernel decodes as fast as the tiled one and prefills a chunk
# behind 800 tokens 6 % faster.
os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")

import onnxruntime  # must follow the variables

__all__ = ["onnxruntime"]
