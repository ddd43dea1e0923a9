"""Imports onnxruntime with its environment set: the variable is read when the library loads."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime  # must follow the variable

onnxruntime.set_default_logger_severity(3)  # its warnings say nothing an operator can act on

__all__ = ["onnxruntime"]
