"""Imports a model into the model directory: built aside, measured, digested, then renamed into place."""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from shared.cpu import Cpu
from shared.errors import ModelCorruptError, ModelUnsupportedError
from shared.model_manifest import IMPORTER_VERSION, Precision, Quality, Source
from shared.model_registry import ModelVersion, activate, active_version, check_name, digest_file, verify, versions_of
from workers.modelstore.genai_import import GenaiDirectory
from workers.modelstore.gguf_import import convert_gguf
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.half_precision import widen_directory
from workers.modelstore.manifest import BuildFacts, combined_sha256, digest_files, write_manifest
from workers.modelstore.overflow_scan import check_weights
from workers.modelstore.quality import CALIBRATION_TEXT, Score, score
from workers.modelstore.quality_gate import GatedQuantizer, QualityGate
from workers.modelstore.quantize import Quantized, Quantizer, Report

_BITS = {"fp32": 32, "int8": 8, "int4": 4}


@dataclass(frozen=True)
class ImportRequest:
    """What to import; `precision` None keeps a quantised directory's own and makes int8 of float32.

    `max_loss_percent` of perplexity may be lost (None: the default of the precision), anything with `force`.
    """

    path: Path
    name: str
    precision: Precision | None = None
    uri: str | None = None
    licence: str | None = None
    max_loss_percent: float | None = None
    force: bool = False


class ModelStore:
    """The directory of installed models, written to. Reading needs only `shared.model_registry`."""

    def __init__(self, model_dir: Path, cpu: Cpu, report: Report) -> None:
        """Install into `model_dir`, note `cpu` in manifests, tell `report` what goes on."""
        self._model_dir, self._cpu, self._report = model_dir, cpu, report

    def add(self, request: ImportRequest) -> ModelVersion:
        """Import a GGUF file or an onnxruntime-genai directory; a name's first version becomes the active one.

        The same source, precision and importer give the version already there, without a rebuild.

        Raises:
            ModelUnsupportedError: the source is of a kind, architecture or precision not supported, holds NaN, or
                loses more quality than the request allows.
        """
        check_name(request.name)
        source = _identify(request)
        precision = request.precision or _own_precision(request.path, source)
        gate = QualityGate.of(precision, request.max_loss_percent, force=request.force)
        version = self._existing(request.name, source, precision, gate)
        version = version or self._build(request, source, precision, gate)
        if active_version(request.name, self._model_dir) is None:
            activate(version.name, version.version, self._model_dir)
        return version

    def _existing(self, name: str, source: Source, precision: Precision, gate: QualityGate) -> ModelVersion | None:
        for version in versions_of(name, self._model_dir):
            manifest = version.manifest
            made_alike = (manifest.importer_version, manifest.precision) == (IMPORTER_VERSION, precision)
            good = gate.accepts(manifest.quality)
            if made_alike and good and manifest.source.sha256 == source.sha256:
                try:
                    verify(version)
                except ModelCorruptError as error:
                    self._report(f"{error.message}: building it anew")
                    shutil.rmtree(version.path)
                else:
                    return version
        return None

    def _build(self, request: ImportRequest, source: Source, precision: Precision, gate: QualityGate) -> ModelVersion:
        home = self._model_dir / request.name
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".importing-", dir=home) as folder:
            target = Path(folder) / "target"
            model, parameters, licence = self._open(request.path, Path(folder) / "source")
            done, quality = self._convert(model, target, precision, gate)
            check_weights(GenaiDirectory(target).config.path)
            facts = BuildFacts(
                name=request.name,
                source=source if request.licence else source.model_copy(update={"licence": licence}),
                parameters=parameters,
                precision=precision,
                weight_bits=done.weight_bits,
                quantisation=done.methods,
                kept_float=done.kept_float,
                quality=quality,
                cpu=self._cpu,
            )
            manifest = write_manifest(target, facts)
            return _install(target, home / manifest.version)

    def _open(self, path: Path, folder: Path) -> tuple[GenaiDirectory, int, str]:
        """Return the model to convert (GGUF or half precision as float32 in `folder`), its parameters and licence."""
        if path.is_dir():
            model = GenaiDirectory(path)
            if model.half:
                self._report(f"widening {model.half} to float32")
                model = widen_directory(model, folder)
            return model, model.parameters, "unknown"
        file = GgufFile(path)
        self._report(f"converting {file.architecture.name}, {file.parameters / 1e6:.0f} million parameters")
        convert_gguf(file, folder)
        return GenaiDirectory(folder), file.parameters, str(file.field("general.license", "unknown"))

    def _convert(
        self, model: GenaiDirectory, target: Path, precision: Precision, gate: QualityGate
    ) -> tuple[Quantized, Quality]:
        text = CALIBRATION_TEXT.read_text(encoding="utf-8")
        own = model.precision
        if own not in {"fp32", precision}:
            raise ModelUnsupportedError(f"{model.path.name} is {own} already; import it with --precision {own}")
        self._report("measuring the source")
        before = score(model.path, text)
        if own == precision:
            model.copy_to(target, with_weights=True)
            return Quantized(_BITS[precision]), _quality(before, before, gate, is_float=own == "fp32")
        quantizer = Quantizer(model, before, self._report, target.with_name("even"))
        attempts = GatedQuantizer(quantizer, gate, self._report)
        done, result = attempts.write(target, precision, before)
        quality = _quality(result, before, gate, is_float=True)
        gate.check(quality)
        return done, quality


def _quality(result: Score, before: Score, gate: QualityGate, *, is_float: bool) -> Quality:
    return Quality(
        perplexity=result.perplexity,
        perplexity_fp32=before.perplexity if is_float else None,
        argmax_agreement=result.agreement(before) if is_float else None,
        largest_activation=result.largest_activation,
        max_loss=gate.max_loss,
        forced=is_float and not gate.holds(result.perplexity, before.perplexity),
        text_sha256=hashlib.sha256(CALIBRATION_TEXT.read_bytes()).hexdigest(),
    )


def _identify(request: ImportRequest) -> Source:
    path = request.path
    if path.is_dir():
        sha256 = combined_sha256(digest_files(GenaiDirectory(path).files))
        return Source(kind="genai", uri=request.uri or path.name, sha256=sha256, licence=request.licence or "unknown")
    if not path.is_file():
        raise ModelUnsupportedError(f"{path} does not exist; give a GGUF file or an onnxruntime-genai directory")
    sha256 = digest_file(path).sha256
    return Source(kind="gguf", uri=request.uri or path.name, sha256=sha256, licence=request.licence or "unknown")


def _own_precision(path: Path, source: Source) -> Precision:
    own: Precision = "fp32" if source.kind == "gguf" else GenaiDirectory(path).precision
    return "int8" if own == "fp32" else own


def _install(built: Path, target: Path) -> ModelVersion:
    for path in built.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    try:
        built.rename(target)
    except OSError:
        if not target.is_dir():  # else another process installed the same content meanwhile
            raise
    return ModelVersion.load(target)
