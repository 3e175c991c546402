"""Before pass 1: the inputs are sealed, turned into plain UTF-8 where they are not, and cut into blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from schemas.console import Progress
from schemas.errors import DataError, IntegrityError
from schemas.seals import Seal, label, seal_file
from sharding.cluster import Cluster
from sharding.config import ShardingSettings
from sharding.inputs import SourceFile
from sharding.scratch import Scratch
from sharding.scratch_documents import Survey, SurveyedBlock, SurveyedFile
from sharding.scratch_folders import start_over
from sharding.sources.adapter import MIXED, NOTES
from sharding.sources.adapters import source_of
from sharding.sources.encodings import transcode
from sharding.sources.formats import is_text
from sharding.sources.opening import opening_through
from sharding.sources.source import Span


@dataclass(frozen=True, slots=True)
class SealedFile:
    """An input and the seal of what it held when the build began."""

    file: SourceFile
    seal: Seal


@dataclass(frozen=True, slots=True)
class SurveyJob:
    """Cut one input of a family; one that holds no notes is made plain, and not cut.

    ``utf8`` is where its plain UTF-8 copy goes if it needs one.
    """

    file: SourceFile
    family: str
    encoding: str
    scratch: Scratch
    utf8: Path
    block_bytes: int

    @property
    def num_bytes(self) -> int:
        """Its share of the work."""
        return self.file.num_bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """How one input is cut."""

    utf8: Seal | None
    spans: list[Span]


def seal_inputs(files: Sequence[SourceFile]) -> list[SealedFile]:
    """Seal every input; the order of the result depends on the contents, not on how the files are named.

    Threads of this process do, since digests and reads let go of the interpreter lock; so a build that is there
    already is recognised without starting a worker.
    """
    sealed = []
    with (
        Progress("seal", sum(file.num_bytes for file in files), "bytes") as progress,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        for file, seal in zip(files, pool.map(_seal, files), strict=True):
            sealed.append(SealedFile(file, seal))
            progress.advance(file.num_bytes)
    return sorted(sealed, key=lambda item: (item.seal.sha256, str(item.file.path)))


def survey_inputs(
    sealed: Sequence[SealedFile], settings: ShardingSettings, scratch: Scratch, *, cluster: Cluster, block_bytes: int
) -> Survey:
    """The cut of all inputs: that of an interrupted build if there is one, else a new one."""
    found = _interrupted(sealed, scratch)
    if found:
        return found
    start_over(scratch)
    jobs = [
        SurveyJob(item.file, settings.source, settings.encoding, scratch, scratch.utf8(number), block_bytes)
        for number, item in enumerate(sealed)
    ]
    cuts = cluster.run(_cut, jobs, title="survey", unit="bytes")
    survey = Survey(
        files=[SurveyedFile(seal=item.seal, utf8=cut.utf8) for item, cut in zip(sealed, cuts, strict=True)],
        blocks=[
            SurveyedBlock(file=number, start=span.start, stop=span.stop, num_bytes=span.num_bytes)
            for number, cut in enumerate(cuts)
            for span in cut.spans
        ],
    )
    scratch.write_document(scratch.survey(), survey)
    return survey


def _seal(file: SourceFile) -> Seal:
    seal = seal_file(file.path)
    file.check_unchanged()
    return seal


def _cut(job: SurveyJob) -> Cut:
    path, utf8 = job.file.path, None
    if is_text(job.file.format) and (job.encoding != "utf-8" or job.file.compression):
        utf8 = job.scratch.publish(job.utf8, lambda out: transcode(job.file.path, out, job.encoding))
        path = job.utf8
    holds_notes = job.file.use in (NOTES, MIXED)
    source = source_of(job.file.format, job.family, NOTES)
    try:
        with opening_through(job.scratch.opened):
            spans = source.spans(path, job.block_bytes) if holds_notes else []
    except DataError as error:
        # Whoever must mend the file does not know its copy.
        raise DataError(str(error).replace(label(path), label(job.file.path))) from None
    job.file.check_unchanged()
    return Cut(utf8, spans)


def _interrupted(sealed: Sequence[SealedFile], scratch: Scratch) -> Survey | None:
    try:
        survey = scratch.read_document(scratch.survey(), Survey)
        for number, file in enumerate(survey.files):
            if file.utf8:
                scratch.check_seal(scratch.utf8(number), file.utf8)
    except IntegrityError:
        return None
    return survey if [file.seal for file in survey.files] == [item.seal for item in sealed] else None
