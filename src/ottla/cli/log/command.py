"""`ottla log dump`: decides what a path is and shows it."""

from __future__ import annotations

import posixpath
from contextlib import closing
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.log import small_files
from ottla.cli.log.convert import convert
from ottla.cli.log.decoders import decoder_for
from ottla.cli.log.directories import dump_log_directory, dump_partition, is_log_directory, is_partition
from ottla.cli.log.indexes import offset_entries, read_index, time_entries, transaction_entries
from ottla.cli.log.repair import repair
from ottla.cli.log.report import JsonReport, Report, TextReport, record_fields
from ottla.cli.log.segments import Problem, check_segment, split_name
from ottla.cli.log.verify import verify
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import visible
from ottla.cli.values import FilePath
from ottla.filesystem import FileSystem, OsFileSystem
from ottla.storage.recovery.scan import Batch, OnBatch, Scan, walk

app = App(name="log", help="Dump, verify, repair and convert log files; no broker is needed.", sort_key=9)

app.command(verify)
app.command(repair)
app.command(convert)

DecoderName = Literal["auto", "metadata", "offsets", "transactions", "none"]


@app.command
def dump(
    *paths: Annotated[FilePath, Parameter(required=True)],
    records: Annotated[Flag, Parameter(alias="-r")] = False,
    decode: DecoderName = "auto",
    json: AsJson = False,
) -> int:
    """Show and check the contents of log files or log directories; no broker is needed, and a running one is not
    disturbed.

    For a file: its batches or entries. For a partition's directory: its segments. For a node's directory: its
    partitions. Checksums, offsets, epochs and the target of every index entry are verified. Exit code 1 if anything is
    damaged.

    Parameters
    ----------
    paths
        Files or directories: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint, checkpoints, meta.properties.
    records
        Show every record, with the contents of __cluster_metadata, __consumer_offsets and __transaction_state decoded,
        and transaction markers.
    decode
        Format of records, if the directory's name does not show it.
    """
    fs = OsFileSystem()
    report: Report = JsonReport() if json else TextReport()
    problems: list[Problem] = []
    for path in map(str, paths):
        try:
            problems += _dump_one(fs, path, report, records, decode)
        except BrokenPipeError:
            raise  # of the output, no file's
        except OSError as error:
            # CorruptFile carries a whole sentence, an error of the system its parts.
            text = str(error) if error.errno is None else error.strerror or str(error)
            raise CommandFailed(visible(text if path in text else f"{path}: {text}")) from error
    return FAILED if problems else OK


def _dump_one(fs: FileSystem, path: str, report: Report, records: bool, decode: DecoderName) -> list[Problem]:
    if not fs.exists(path):
        raise CommandFailed(f"there is no file or directory {visible(path)}")
    if fs.is_dir(path):
        if is_partition(fs, path):
            problems = dump_partition(fs, path, report)
            logs = [name for name in fs.listdir(path) if name.endswith((".log", ".checkpoint"))] if records else []
            for name in logs:
                problems += _dump_file(fs, posixpath.join(path, name), report, True, decode)
            return problems
        if is_log_directory(fs, path):
            return dump_log_directory(fs, path, report)
        raise CommandFailed(
            f"{visible(path)} is neither a log directory nor a partition directory: no meta.properties, no segments"
        )
    return _dump_file(fs, path, report, records, decode)


def _dump_file(fs: FileSystem, path: str, report: Report, records: bool, decode: DecoderName) -> list[Problem]:
    name = posixpath.basename(path)
    if name in small_files.READERS:
        return _dump_contents(report, path, small_files.READERS[name](fs, path))
    named = (0, ".checkpoint") if name == "bootstrap.checkpoint" else split_name(name)
    if named is None:
        raise CommandFailed(f"{visible(path)}: not a file name of a log directory, such as 00000000000000000000.log")
    base_offset, kind = named
    if kind in (".log", ".checkpoint"):
        return _dump_batches(fs, path, base_offset, kind, report, records, decode)
    if kind == ".snapshot":
        return _dump_contents(report, path, small_files.producer_snapshot(fs, path))
    return _dump_index(fs, path, base_offset, kind, report)


def _dump_contents(report: Report, path: str, contents: small_files.Contents) -> list[Problem]:
    report.heading(path, {})
    report.table(contents.kind, contents.columns, contents.rows)
    report.summary(path, {"entries": len(contents.rows)}, ())
    return []


def _dump_batches(
    fs: FileSystem, path: str, base_offset: int, kind: str, report: Report, records: bool, decode: DecoderName
) -> list[Problem]:
    report.heading(path, {})
    decoder = decoder_for(path, decode)

    def show(batch: Batch) -> None:
        report.batch(batch)
        if records:
            for fields in record_fields(batch, decoder):
                report.record(fields)

    if kind == ".log":
        segment = check_segment(fs, path, base_offset, deep=True, on_batch=show)
        scan, problems = segment.scan, segment.problems
        entries = {f"{name.removeprefix('.')}_entries": count for name, count in segment.index_entries.items()}
    else:
        scan, entries = _walk_snapshot(fs, path, show), {}
        problems = [Problem(path, text) for text in scan.problems]
    report.summary(path, {**scan_facts(scan), **entries}, problems)
    return problems


def _walk_snapshot(fs: FileSystem, path: str, show: OnBatch) -> Scan:
    """A snapshot's offsets count from 0, whatever offset its name ends at."""
    with closing(fs.open(path, read_only=True)) as file:
        scan = Scan(file.size())
        for batch in walk(file, scan, 0, deep=True):
            show(batch)
    return scan


def scan_facts(scan: Scan) -> dict[str, object]:
    facts: dict[str, object] = {"batches": scan.batches, "records": scan.records, "bytes": scan.size}
    if scan.batches:
        facts |= {"first_offset": scan.first_offset, "next_offset": scan.next_offset}
    if scan.preallocated_bytes:
        facts["preallocated_bytes"] = scan.preallocated_bytes
    if scan.problems:
        facts["sound_bytes"] = scan.valid_bytes
    return facts


def _dump_index(fs: FileSystem, path: str, base_offset: int, kind: str, report: Report) -> list[Problem]:
    """The entries of an index, checked against the log beside it if there is one."""
    data, size = read_index(fs, path)
    report.heading(path, {})
    if kind == ".index":
        offsets = offset_entries(data, base_offset)
        report.table("index_entry", ("OFFSET>", "POSITION>"), offsets)
        count = len(offsets)
    elif kind == ".timeindex":
        times = time_entries(data, base_offset)
        report.table("index_entry", ("TIMESTAMP>", "OFFSET>"), times)
        count = len(times)
    else:
        columns = ("VERSION>", "PRODUCER>", "FIRST OFFSET>", "LAST OFFSET>", "LAST STABLE OFFSET>")
        transactions = transaction_entries(data)
        report.table("index_entry", columns, transactions)
        count = len(transactions)
    log = path.replace(kind, ".log")
    problems: list[Problem] = []
    if fs.exists(log):
        problems = [p for p in check_segment(fs, log, base_offset, deep=False).problems if p.path == path]
    facts: dict[str, object] = {"entries": count, "bytes": size}
    if not fs.exists(log):
        facts["not_checked"] = "no log beside it"
    report.summary(path, facts, problems)
    return problems
