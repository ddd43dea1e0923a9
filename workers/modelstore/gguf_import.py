"""GGUF file to a float32 onnxruntime-genai model directory, without torch."""

from pathlib import Path

from workers.modelstore.decoder_graph import DecoderGraph
from workers.modelstore.genai_config import write_config
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.graph import save
from workers.modelstore.tokenizer_import import token_ids, write_tokenizer


def convert_gguf(file: GgufFile, directory: Path) -> None:
    """Write graph, configuration and tokenizer into `directory`.

    Raises:
        ModelUnsupportedError: see `GgufFile.architecture` and `build_tokenizer`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(file, directory)
    write_config(file.architecture, token_ids(file), directory)
    save(DecoderGraph(file).build(), directory)
