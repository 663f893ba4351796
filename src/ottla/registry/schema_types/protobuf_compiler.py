"""`.proto` files into descriptors, by protoc as grpcio-tools has it: in this process, in a millisecond."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from grpc_tools import _protoc_compiler

from ottla.registry.schema_types.parsed import InvalidSchema

ROOT: Final = "__root__.proto"
"""The file's name while it is compiled: nothing imports it by that."""
_SERIALIZED: Final = re.compile(r"AddSerializedFile\((b'(?:[^'\\]|\\.)*')\)")
_SYNTAX: Final = re.compile(r"^\s*(?:syntax|edition)\s*=")
_COMMENTS: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LOCK: Final = threading.Lock()
"""Guards the compiler, which is not documented as thread-safe."""

KNOWN: Final = {
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
option java_outer_classname = "MetaProto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
option java_package = "io.confluent.protobuf.type";
option java_multiple_files = true;
option java_outer_classname = "DecimalProto";
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}
"""Files that Confluent's serializers import without registering them."""


def compile_files(files: Mapping[str, str]) -> dict[str, FileDescriptorProto]:
    """Descriptors of ROOT, which has to be among the files, and of all that it imports, what is imported first.

    Well-known files (google/protobuf, google/type if googleapis-common-protos is installed, confluent) need not be
    given. Raises InvalidSchema.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-protoc-") as directory:
        for name, text in {**KNOWN, **files}.items():
            path = Path(directory, *_checked(name).parts)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_with_syntax(text), encoding="utf-8")
            except (OSError, UnicodeEncodeError) as error:  # `a` is a file, and the directory of `a/b` as well
                raise InvalidSchema(f"a file cannot be imported as {name!r}: {error}") from error
        try:
            with _LOCK:
                found = _protoc_compiler.get_protos(
                    ROOT.encode(), [each.encode() for each in (directory, *_includes())]
                )
        except _protoc_compiler.ProtocErrors as error:
            raise InvalidSchema(_said(error)) from None
    return dict(map(_descriptor, found))


def _with_syntax(text: str) -> str:
    """A file that does not say its syntax is proto2: said here, so that the compiler does not warn of it."""
    return text if _SYNTAX.search(_COMMENTS.sub(" ", text)) else f'syntax = "proto2"; {text}'


def _includes() -> list[str]:
    found = [os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")]
    try:
        common = importlib.util.find_spec("google.type")
    except ImportError:
        common = None
    if common is not None and common.submodule_search_locations:
        found.append(str(Path(next(iter(common.submodule_search_locations))).parents[1]))
    return found


def _checked(name: str) -> PurePosixPath:
    """A name that is a path below a directory. Raises InvalidSchema."""
    path = PurePosixPath(name)
    is_below = name and "\0" not in name and "\\" not in name and not path.is_absolute() and ".." not in path.parts
    if not is_below or len(name) > 255:
        raise InvalidSchema(f"a file cannot be imported as {name!r}")
    return path


def _descriptor(generated: tuple[bytes, bytes]) -> tuple[str, FileDescriptorProto]:
    """Out of the Python module that the compiler makes: it has the serialized file as a literal."""
    _, code = generated
    found = _SERIALIZED.search(code.decode())
    if found is None:
        raise InvalidSchema("the compiler of protobuf has made no descriptor")
    descriptor = FileDescriptorProto.FromString(ast.literal_eval(found[1]))
    return descriptor.name, descriptor


def _said(error: Exception) -> str:
    """The error, and its place in the file."""
    said = []
    for each in getattr(error, "errors", list)():
        message = each.message.decode(errors="replace") if isinstance(each.message, bytes) else str(each.message)
        name = each.filename.decode(errors="replace") if isinstance(each.filename, bytes) else str(each.filename)
        place = "" if each.line < 0 else f" at line {each.line + 1}, column {each.column + 1}"
        said.append(f"{message}{place}" + ("" if name == ROOT else f" of {name}"))
    return "; ".join(said) or str(error)


def decoded(data: bytes) -> FileDescriptorProto | None:
    """A serialized descriptor, as clients register it in place of a text; None for anything else."""
    try:
        descriptor = FileDescriptorProto.FromString(data)
    except DecodeError:
        return None
    return descriptor if descriptor.name or descriptor.message_type else None
