"""Whole directories: a partition's segments in one table, a node's partitions in one table."""

from __future__ import annotations

import posixpath

from ottla.cli.log import small_files
from ottla.cli.log.decoders import topic_of
from ottla.cli.log.report import Report
from ottla.cli.log.segments import Problem, Segment, base_offsets, check_segment
from ottla.cli.output import human_bytes, iso_time
from ottla.filesystem import FileSystem
from ottla.model import METADATA_TOPIC, TopicPartition
from ottla.storage.checkpoints import offset_checkpoint
from ottla.storage.checkpoints.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.log_manager import CHECKPOINTS
from ottla.storage.recovery.damage import KNOWN_GAPS_FILE, is_known, read_known_gaps
from ottla.storage.recovery.repair import is_snapshot_damaged

_OF_A_NODE = (META_PROPERTIES_FILE, *CHECKPOINTS)


def is_partition(fs: FileSystem, path: str) -> bool:
    return any(True for _ in base_offsets(fs, path)) or (
        topic_of(path) is not None and fs.exists(posixpath.join(path, "partition.metadata"))
    )


def is_log_directory(fs: FileSystem, path: str) -> bool:
    """A node's, or one with partitions in it; a directory such as `dbus-1` makes none of /etc."""
    return is_of_a_node(fs, path) or any(is_partition(fs, each) for each in partition_directories(fs, path))


def is_of_a_node(fs: FileSystem, path: str) -> bool:
    """Whether a node has written here what it writes into each log directory."""
    return any(fs.exists(posixpath.join(path, name)) for name in _OF_A_NODE)


def partition_directories(fs: FileSystem, path: str) -> list[str]:
    """The partition directories of a node's directory, by topic and number."""
    names = [name for name in fs.listdir(path) if topic_of(name) is not None]
    found = [posixpath.join(path, name) for name in sorted(names, key=_topic_and_number)]
    return [directory for directory in found if fs.is_dir(directory)]


def _topic_and_number(name: str) -> tuple[str, int, str]:
    topic, _, number = name.rpartition("-")
    return topic, int(number) if number.isdigit() else -1, name


def check_partition(
    fs: FileSystem, directory: str, *, deep: bool, contiguous: bool = False, known_end: int = 0, log_start: int = 0
) -> tuple[list[Segment], list[Problem]]:
    """Its segments and small files, each by itself and against each other.

    `contiguous` says that no offset may be missing, but those of known gaps; `known_end` up to where records were.
    """
    problems: list[Problem] = []
    gaps = _known_gaps(fs, directory, problems)
    segments: list[Segment] = []
    for base_offset in base_offsets(fs, directory):
        path = posixpath.join(directory, f"{base_offset:020d}.log")
        try:
            segment = check_segment(fs, path, base_offset, deep=deep)
        except FileNotFoundError:  # retention of a running broker was quicker
            continue
        if segments and 0 <= segment.base_offset < segments[-1].scan.next_offset:
            end = segments[-1].scan.next_offset
            problems.append(Problem(path, f"begins before offset {end}, where the segment before it ends"))
        elif contiguous and segments and not is_known(gaps, end_offset(segments), base_offset):
            end = end_offset(segments)
            problems.append(Problem(path, f"byte 0: offsets {end} to {base_offset - 1} are missing before it"))
        segments.append(segment)
        problems += segment.problems
        if contiguous:
            problems += [
                Problem(path, f"byte {gap.position}: offsets {gap.first} to {gap.end - 1} are missing before it")
                for gap in segment.scan.gaps
                if not is_known(gaps, gap.first, gap.end)
            ]
    end = end_offset(segments) if segments else 0
    if end < known_end:
        path = segments[-1].path if segments else directory
        problems.append(Problem(path, f"the log ends at offset {end}, and records up to {known_end} were fsynced"))
    if end < log_start:
        problems.append(Problem(directory, f"the log ends at offset {end}, and begins at {log_start}"))
    if topic_of(directory) == METADATA_TOPIC:
        problems += _snapshot_problems(fs, directory)
    problems += _small_file_problems(fs, directory, segments)
    return segments, problems


def _known_gaps(fs: FileSystem, directory: str, problems: list[Problem]) -> list[tuple[int, int]]:
    try:
        return read_known_gaps(fs, directory)
    except CorruptFile as error:
        problems.append(Problem(posixpath.join(directory, KNOWN_GAPS_FILE), str(error)))
        return []


def _snapshot_problems(fs: FileSystem, directory: str) -> list[Problem]:
    paths = [posixpath.join(directory, name) for name in fs.listdir(directory) if name.endswith(".checkpoint")]
    return [Problem(path, "it is not a whole snapshot") for path in paths if is_snapshot_damaged(fs, path)]


def _small_file_problems(fs: FileSystem, directory: str, segments: list[Segment]) -> list[Problem]:
    problems = []
    for name in fs.listdir(directory):
        path = posixpath.join(directory, name)
        reader = small_files.READERS.get(name)
        if name.endswith(".snapshot"):
            reader = small_files.producer_snapshot
        if reader is None:
            continue
        try:
            contents = reader(fs, path)
        except CorruptFile as error:
            problems.append(Problem(path, str(error)))
            continue
        except FileNotFoundError:
            continue
        if contents.kind == "leader_epoch" and contents.rows and segments:
            epoch, start = contents.rows[-1]
            end = end_offset(segments)
            if isinstance(start, int) and start > end:
                problems.append(Problem(path, f"epoch {epoch} starts at offset {start}, past the log's end at {end}"))
    return problems


def end_offset(segments: list[Segment]) -> int:
    """Where the log ends: an empty last segment ends where it begins."""
    last = segments[-1]
    return last.scan.next_offset if last.scan.batches else last.base_offset


def dump_partition(fs: FileSystem, directory: str, report: Report) -> list[Problem]:
    segments, problems = check_partition(fs, directory, deep=True)
    report.heading(directory, {})
    columns = (
        "SEGMENT>",
        "NEXT OFFSET>",
        "BATCHES>",
        "RECORDS>",
        "BYTES>",
        "INDEX>",
        "TIME INDEX>",
        "LAST TIME",
        "STATE",
    )
    report.table(
        "segment",
        columns,
        [
            (
                segment.base_offset,
                end_offset([segment]),
                segment.scan.batches,
                segment.scan.records,
                segment.scan.size,
                segment.index_entries.get(".index"),
                segment.index_entries.get(".timeindex"),
                iso_time(segment.scan.max_timestamp),
                "damaged" if segment.problems else "ok",
            )
            for segment in segments
        ],
    )
    for name in fs.listdir(directory):
        if name in small_files.READERS or name.endswith(".snapshot"):
            path = posixpath.join(directory, name)
            reader = small_files.READERS.get(name, small_files.producer_snapshot)
            try:
                contents = reader(fs, path)
            except OSError:  # reported as a problem already, or gone
                continue
            report.heading(path, {})
            report.table(contents.kind, contents.columns, contents.rows)
    report.summary(directory, _totals([segments]), problems)
    return problems


def dump_log_directory(fs: FileSystem, path: str, report: Report) -> list[Problem]:
    problems: list[Problem] = []
    report.heading(path, _identity(fs, path, problems))
    # Checkpoints first: what a running broker appends meanwhile can only move the logs past them.
    starts = _checkpoint(fs, path, offset_checkpoint.LOG_START_OFFSET_CHECKPOINT, problems)
    recovery_points = _checkpoint(fs, path, offset_checkpoint.RECOVERY_POINT_CHECKPOINT, problems)
    rows: list[tuple[object, ...]] = []
    everything = []
    for directory in partition_directories(fs, path):
        segments, found = check_partition(fs, directory, deep=True)
        everything.append(segments)
        name = posixpath.basename(directory)
        topic, _, number = name.rpartition("-")
        start, end = segments[0].base_offset if segments else 0, end_offset(segments) if segments else 0
        if number.isdigit():
            key = TopicPartition(topic, int(number))
            start = max(start, starts.get(key, 0))
            found += _checkpoint_problems(path, key, end, starts.get(key), recovery_points.get(key))
        problems += found
        size = sum(segment.scan.size for segment in segments)
        records = sum(segment.scan.records for segment in segments)
        rows.append((name, len(segments), start, end, records, size, "damaged" if found else "ok"))
    columns = ("PARTITION", "SEGMENTS>", "START>", "END>", "RECORDS>", "BYTES>", "STATE")
    report.table("partition", columns, rows)
    report.summary(path, {"partitions": len(rows), **_totals(everything)}, problems)
    return problems


def _identity(fs: FileSystem, path: str, problems: list[Problem]) -> dict[str, object]:
    facts: dict[str, object] = {}
    try:
        meta = read_meta_properties(fs, path)
        if meta is not None:
            facts |= {"cluster": meta.cluster_id, "node": meta.node_id, "directory_id": meta.directory_id}
    except CorruptFile as error:
        problems.append(Problem(posixpath.join(path, META_PROPERTIES_FILE), str(error)))
    stopped = fs.exists(offset_checkpoint.clean_shutdown_path(path))
    facts["last_stop"] = "clean" if stopped else "none: the node is running, or was killed"
    return facts


def check_checkpoints(fs: FileSystem, path: str) -> list[Problem]:
    """Problems of the small files in a node's directory."""
    problems: list[Problem] = []
    _identity(fs, path, problems)
    for name in CHECKPOINTS:
        _checkpoint(fs, path, name, problems)
    return problems


def _checkpoint(fs: FileSystem, path: str, name: str, problems: list[Problem]) -> dict[TopicPartition, int]:
    try:
        return offset_checkpoint.read_offset_checkpoint(fs, posixpath.join(path, name))
    except CorruptFile as error:
        problems.append(Problem(posixpath.join(path, name), str(error)))
        return {}


def _checkpoint_problems(
    path: str, partition: TopicPartition, end: int, start: int | None, recovery_point: int | None
) -> list[Problem]:
    problems = []
    if start is not None and start > end:
        text = f"{partition} begins at {start}, but its log ends at {end}"
        problems.append(Problem(posixpath.join(path, offset_checkpoint.LOG_START_OFFSET_CHECKPOINT), text))
    if recovery_point is not None and recovery_point > end:
        text = f"{partition} was flushed up to {recovery_point}, but its log ends at {end}"
        problems.append(Problem(posixpath.join(path, offset_checkpoint.RECOVERY_POINT_CHECKPOINT), text))
    return problems


def _totals(partitions: list[list[Segment]]) -> dict[str, object]:
    scans = [segment.scan for segments in partitions for segment in segments]
    return {
        "segments": len(scans),
        "batches": sum(scan.batches for scan in scans),
        "records": sum(scan.records for scan in scans),
        "size": human_bytes(sum(scan.size for scan in scans)),
    }
