"""The messages of tf.train made at run time, for google.protobuf: a slow, obvious twin of the parser."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TYPES = descriptor_pb2.FieldDescriptorProto
ONE, MANY = TYPES.LABEL_OPTIONAL, TYPES.LABEL_REPEATED


def _message(file: Any, name: str, *fields: tuple[Any, ...]) -> Any:
    """Add a message; fields are (name, number, label, type or message name)."""
    added = file.message_type.add(name=name)
    for field, number, label, kind in fields:
        made = added.field.add(name=field, number=number, label=label)
        if isinstance(kind, str):
            made.type, made.type_name = TYPES.TYPE_MESSAGE, f".twin.{kind}"
        else:
            made.type = kind
    return added


def _map(message: Any, field: str, number: int, value: str) -> None:
    """Add a map from strings to messages of the type `value`."""
    entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=ONE, type=TYPES.TYPE_STRING)
    entry.field.add(name="value", number=2, label=ONE, type=TYPES.TYPE_MESSAGE, type_name=f".twin.{value}")
    kind = f".twin.{message.name}.{entry.name}"
    message.field.add(name=field, number=number, label=MANY, type=TYPES.TYPE_MESSAGE, type_name=kind)


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="twin.proto", package="twin", syntax="proto3")
    _message(file, "BytesList", ("value", 1, MANY, TYPES.TYPE_BYTES))
    _message(file, "FloatList", ("value", 1, MANY, TYPES.TYPE_FLOAT))
    _message(file, "Int64List", ("value", 1, MANY, TYPES.TYPE_INT64))
    lists = [
        ("bytes_list", 1, ONE, "BytesList"),
        ("float_list", 2, ONE, "FloatList"),
        ("int64_list", 3, ONE, "Int64List"),
    ]
    feature = _message(file, "Feature", *lists)
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    _map(_message(file, "Features"), "feature", 1, "Feature")
    _message(file, "FeatureList", ("feature", 1, MANY, "Feature"))
    _map(_message(file, "FeatureLists"), "feature_list", 1, "FeatureList")
    _message(file, "Example", ("features", 1, ONE, "Features"))
    _message(file, "SequenceExample", ("context", 1, ONE, "Features"), ("feature_lists", 2, ONE, "FeatureLists"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        kind.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"twin.{kind.name}"))
        for kind in file.message_type
    }


CLASSES = _classes()
Example, SequenceExample, Feature, Features = (
    CLASSES[n] for n in ("Example", "SequenceExample", "Feature", "Features")
)
KINDS = {"bytes_list": 1, "float_list": 2, "int64_list": 3}


def set_values(feature: Any, values: list[Any]) -> None:
    """The values of a feature: of the kind of the first one; none set for an empty list."""
    if not values:
        return
    kind = (
        "bytes_list" if isinstance(values[0], bytes) else "float_list" if isinstance(values[0], float) else "int64_list"
    )
    getattr(feature, kind).value.extend(values)


def example(features: dict[str, list[Any]]) -> bytes:
    """An Example, as google.protobuf writes it."""
    made = Example()
    made.features.SetInParent()
    for key, values in features.items():
        set_values(made.features.feature[key], values)
    return made.SerializeToString(deterministic=True)


def sequence(context: dict[str, list[Any]], lists: dict[str, list[list[Any]]]) -> bytes:
    """A SequenceExample, likewise."""
    made = SequenceExample()
    for key, values in context.items():
        set_values(made.context.feature[key], values)
    for key, steps in lists.items():
        found = made.feature_lists.feature_list[key]
        for values in steps:
            set_values(found.feature.add(), values)
    return made.SerializeToString(deterministic=True)


def values_of(feature: Any) -> tuple[int, list[Any]]:
    """Kind (0: none) and values of a feature that was parsed."""
    kind = feature.WhichOneof("kind")
    return (0, []) if kind is None else (KINDS[kind], list(getattr(feature, kind).value))


def parsed(record: bytes) -> dict[str, tuple[int, list[Any]]]:
    """What an Example holds: key → (kind, values).

    Raises:
        google.protobuf.message.DecodeError: no Example.
    """
    return {key: values_of(value) for key, value in Example.FromString(record).features.feature.items()}


# Bytes by hand, for what google.protobuf never writes


def varint(value: int) -> bytes:
    """A number of 64 bits, negative ones as two's complement."""
    value %= 1 << 64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, payload: bytes | int, kind: int = 2) -> bytes:
    """One field: bytes with their length, or a varint."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | kind) + (varint(len(payload)) if kind == 2 else b"") + payload


def entry(key: bytes, *values: bytes) -> bytes:
    """An entry of a map, of a key and pieces of its value."""
    return field(1, field(1, key) + b"".join(field(2, value) for value in values))


def features(*entries: bytes) -> bytes:
    """An Example of such entries."""
    return field(1, b"".join(entries))


def int64s(*values: int) -> bytes:
    """A Feature of ints, packed."""
    return field(3, field(1, b"".join(map(varint, values))))
