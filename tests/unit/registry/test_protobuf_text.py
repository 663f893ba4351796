"""The text that is written of a descriptor compiles to the same descriptor, whatever is in it."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.schema_types.parsed import InvalidSchema, Resolved
from ottla.registry.schema_types.protobuf_schema import ProtobufSchema

FILES = {
    "proto3": """
        // a comment
        syntax = "proto3";
        package a.b;
        import "google/protobuf/timestamp.proto";
        import public "google/protobuf/empty.proto";
        option java_package = "org.example";
        option optimize_for = SPEED;
        message M {
          reserved 8, 10 to 12, 100 to max;
          reserved "gone", "lost";
          option deprecated = true;
          string text = 1 [json_name = "other"];
          optional int32 maybe = 2;
          repeated double many = 3 [packed = false, deprecated = true];
          map<string, .a.b.M.Inner> by_name = 4;
          google.protobuf.Timestamp at = 5;
          oneof choice { Inner inner = 6; E e = 7; }
          message Inner { enum Deep { NOTHING = 0; } Deep deep = 1; message Empty {} }
          enum E { option allow_alias = true; ZERO = 0; NIL = 0; MINUS = -1; reserved 5, 7 to max; reserved "OLD"; }
        }
        enum Top { A = 0; B = 1 [deprecated = true]; }
        service S {
          option deprecated = true;
          rpc Plain (M) returns (M);
          rpc Both (stream M) returns (stream google.protobuf.Empty) { option deprecated = true; }
        }
    """,
    "proto2": """
        syntax = "proto2";
        package p;
        message M {
          required string name = 1 [default = "a \\"quoted\\" one\\n"];
          optional bytes data = 2 [default = "\\000\\377x"];
          optional float inf = 3 [default = inf];
          optional E e = 4 [default = B];
          repeated group Item = 5 { optional int32 n = 1; }
          extensions 100 to 199;
          extensions 1000 to max;
          enum E { A = 1; B = 2; }
          extend M { optional int32 inside = 101; }
        }
        extend M { repeated string outside = 100; optional M again = 102; }
    """,
    "custom options": """
        syntax = "proto3";
        import "confluent/meta.proto";
        import "google/protobuf/descriptor.proto";
        option (confluent.file_meta) = { doc: "file \\"doc\\"" };
        extend google.protobuf.FieldOptions { string unit = 50001; repeated int32 codes = 50002; }
        message M {
          option (confluent.message_meta).doc = "message";
          int32 size = 1 [(unit) = "bytes", (codes) = 1, (codes) = 2, (confluent.field_meta) = {
            tags: "PII" params: { key: "k" value: "v" } }];
        }
    """,
    "an edition": """
        edition = "2023";
        option features.field_presence = IMPLICIT;
        message M { int32 n = 1; string s = 2 [features.field_presence = EXPLICIT]; }
    """,
    "no package and no message": 'syntax = "proto3"; enum E { A = 0; }',
    "no syntax": "message M { optional int32 n = 1; }",
}


def compiled(schema: ProtobufSchema) -> FileDescriptorProto:
    return schema.file


@pytest.mark.parametrize("name", FILES)
def test_the_text_compiles_to_the_same(name: str) -> None:
    schema = ProtobufSchema(FILES[name], ())
    again = ProtobufSchema(schema.text, ())
    assert again.text == schema.text
    expected, found = FileDescriptorProto(), FileDescriptorProto()
    expected.CopyFrom(schema.file)
    found.CopyFrom(again.file)
    for file in (expected, found):  # these stand in another order: messages before enums, members of a oneof together
        file.dependency[:] = sorted(file.dependency)
        del file.public_dependency[:]
        for message in file.message_type:
            message.field.sort(key=lambda each: each.number)
    assert found == expected


def test_the_layout() -> None:
    text = 'syntax="proto3";package p;message M{string a=1;oneof o{int32 b=2;}}enum E{Z=0;}'
    assert ProtobufSchema(text, ()).text == (
        'syntax = "proto3";\n'
        "package p;\n"
        "\n"
        "message M {\n"
        "  string a = 1;\n"
        "\n"
        "  oneof o {\n"
        "    int32 b = 2;\n"
        "  }\n"
        "}\n"
        "enum E {\n"
        "  Z = 0;\n"
        "}\n"
    )


def test_normalized_text_has_one_order() -> None:
    one = 'syntax = "proto3"; message M { string b = 2; string a = 1; } enum E { Z = 0; B = 2; A = 1; }'
    other = 'syntax = "proto3"; message M { string a = 1; string b = 2; } enum E { Z = 0; A = 1; B = 2; }'
    assert ProtobufSchema(one, ()).normalized() == ProtobufSchema(other, ()).normalized()
    assert ProtobufSchema(one, ()).text != ProtobufSchema(other, ()).text


def test_a_descriptor_in_base64_is_a_schema() -> None:
    schema = ProtobufSchema(FILES["custom options"], ())
    serialized = schema.formatted("serialized")
    assert ProtobufSchema(serialized, ()).text == schema.text
    assert FileDescriptorProto.FromString(base64.b64decode(serialized)).name == "default"


def test_imports_are_references() -> None:
    inner = 'syntax = "proto3"; package i; message In { int32 n = 1; }'
    outer = 'syntax = "proto3"; import "dir/in.proto"; message Out { i.In in = 1; }'
    schema = ProtobufSchema(outer, [Resolved("dir/in.proto", inner)])
    assert "  .i.In in = 1;\n" in schema.text
    serialized = ProtobufSchema(inner, ()).formatted("serialized")
    assert ProtobufSchema(outer, [Resolved("dir/in.proto", serialized)]).text == schema.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "Expected top-level statement"),
        ('syntax = "proto3"; message M { Unknown u = 1; }', '"Unknown" is not defined. at line 1, column 32'),
        ('syntax = "proto3";\nmessage M { int32 a = 1; int32 b = 1; }', "at line 2"),
        ('syntax = "proto3"; import "gone.proto";', "gone.proto"),
        ('syntax = "proto3"; import "../../../etc/passwd";', "passwd"),
        ('syntax = "proto4";', "proto4"),
    ],
)
def test_invalid(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema) as raised:
        ProtobufSchema(text, ())
    assert said in str(raised.value)


@pytest.mark.parametrize("name", ["../up.proto", "/etc/passwd", "a\0b", "__root__.proto", ""])
def test_references_stay_below_their_directory(name: str) -> None:
    with pytest.raises(InvalidSchema):
        ProtobufSchema('syntax = "proto3";', [Resolved(name, 'syntax = "proto3";')])
