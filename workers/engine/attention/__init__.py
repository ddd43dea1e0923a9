"""Attention over quantised KV rows, compiled for the processor it runs on."""
