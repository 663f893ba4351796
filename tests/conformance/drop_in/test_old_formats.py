"""Logs that Kafka's own classes wrote in message format 0 and 1: `ottla log convert` keeps what those classes read, and
so do the conversions for old clients, in both directions.

The bytes alone are in `tests/unit/protocol/test_old_formats.py`; this finds what only Kafka's readers and writers see.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from ottla.filesystem import OsFileSystem
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.message_set import size_of
from ottla.protocol.records.old_formats import down_convert, up_convert
from ottla.protocol.records.record_batch import iterate_batches, iterate_records, read_batch_header
from ottla.storage.recovery.conversion import convert_segment, formats_of, is_old, remove_old_files
from peers.kafka import START_FAST, install, java

# Sets of all codecs, of one record and of many, with offsets that are missing, nulls, and both kinds of time; then each
# file as Kafka reads it: offset, time, kind of time, codec, key, value.
PROGRAM = """
import java.io.File;
import java.nio.ByteBuffer;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

public class OldLogs {
    static byte[] bytes(Random random, int limit) {
        if (random.nextInt(5) == 0) return null;
        byte[] made = new byte[random.nextInt(limit)];
        random.nextBytes(made);
        return made;
    }

    static String hex(ByteBuffer data) {
        if (data == null) return "null";
        StringBuilder out = new StringBuilder("=");
        while (data.hasRemaining()) out.append(String.format("%02x", data.get()));
        return out.toString();
    }

    static void write(File file, byte magic) throws Exception {
        Random random = new Random(magic);
        FileRecords log = FileRecords.open(file);
        long offset = 0;
        for (int set = 0; set < 60; set++) {
            Compression[] codecs = {
                Compression.NONE, Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build()
            };
            boolean appendTime = magic == 1 && set % 3 == 2;
            TimestampType kind = appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
            long time = 1700000000000L + set;
            ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
            MemoryRecordsBuilder builder =
                MemoryRecords.builder(buffer, magic, codecs[set % 4], kind, offset, time);
            int count = 1 + random.nextInt(12);
            for (int number = 0; number < count; number++) {
                long at = magic == 0 ? -1 : time + random.nextInt(5);
                builder.appendWithOffset(offset, at, bytes(random, 20), bytes(random, 200));
                offset += 1 + (random.nextInt(4) == 0 ? random.nextInt(9) : 0);
            }
            log.append(builder.build());
        }
        log.close();
    }

    static void read(File file) throws Exception {
        FileRecords log = FileRecords.open(file);
        for (RecordBatch batch : log.batches()) {
            batch.ensureValid();
            for (org.apache.kafka.common.record.internal.Record record : batch) {
                String kind = batch.timestampType() == TimestampType.LOG_APPEND_TIME ? "append" : "create";
                System.out.println(record.offset() + " " + record.timestamp() + " " + kind + " "
                    + batch.compressionType().name + " " + hex(record.key()) + " " + hex(record.value()));
            }
        }
        log.close();
    }

    public static void main(String[] arguments) throws Exception {
        for (int at = 1; at < arguments.length; at++)
            if (arguments[0].equals("write")) write(new File(arguments[at]), (byte) (at - 1));
            else read(new File(arguments[at]));
    }
}
"""


def run(directory: Path, *arguments: str) -> list[str]:
    command = java("OldLogs.java", *arguments, flags=START_FAST)
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


def test_kafka_reads_the_same_before_and_after(tmp_path: Path) -> None:
    install()
    (tmp_path / "OldLogs.java").write_text(PROGRAM)
    directories = [tmp_path / "v0-0", tmp_path / "v1-0"]
    files = [directory / f"{0:020d}.log" for directory in directories]
    for directory in directories:
        directory.mkdir()
    run(tmp_path, "write", *map(str, files))
    before = run(tmp_path, "read", *map(str, files))
    assert len(before) > 600
    for name in ("gzip", "snappy", "lz4", "none"):
        assert sum(f" {name} " in line for line in before) > 50, name
    assert sum(" append " in line for line in before) > 50
    produced = list(of_produced(files))
    fs = OsFileSystem()
    for directory in directories:
        (found,) = formats_of(fs, str(directory))
        assert is_old(found) and not found.batches
        convert_segment(fs, str(directory), 0, last=True)
        remove_old_files(fs, str(directory))
    fetched = [tmp_path / f"fetched-{magic}" for magic in (0, 1)]
    for magic in (0, 1):
        fetched[magic].write_bytes(down_convert(files[magic].read_bytes(), magic, 0, 1 << 30).data)
    after = run(tmp_path, "read", *map(str, files), *map(str, fetched))
    assert after[: len(before)] == before
    assert after[len(before) :] == before, "what an old client is sent"
    assert list(of_ours(files)) == [line.split()[0] for line in before]
    assert produced == [(line.split()[1], *line.split()[3:]) for line in before], "what an old client sends"


def of_produced(files: Iterable[Path]) -> Iterable[tuple[str, str, str, str]]:
    """The records of what becomes of each message, or compressed set, in a Produce request."""
    for file in files:
        data, position = file.read_bytes(), 0
        while position < len(data):
            size = size_of(data, position)
            batch = up_convert(data[position : position + size])
            position += size
            assert batch is not None
            codec = Codec(read_batch_header(batch).codec).name.lower()
            for number, record in enumerate(iterate_records(batch)):
                assert record.offset == number
                yield str(record.timestamp), codec, shown(record.key), shown(record.value)


def shown(data: bytes | None) -> str:
    return "null" if data is None else "=" + data.hex()


def of_ours(files: Iterable[Path]) -> Iterable[str]:
    for file in files:
        data = file.read_bytes()
        for at, _ in iterate_batches(data):
            for record in iterate_records(data, at):
                yield str(record.offset)
