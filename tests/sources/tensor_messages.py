"""TorchRecord's message types, for google.protobuf: a twin, and what writes messages for tests."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Number, name, type, label of each field; PACKED as TorchRecord declared them.
FIELDS = [
    (1, "dims", "INT64", "REPEATED"),
    (2, "data_type", "INT32", "OPTIONAL"),
    (3, "float_data", "FLOAT", "PACKED"),
    (4, "int32_data", "INT32", "PACKED"),
    (5, "byte_data", "BYTES", "OPTIONAL"),
    (6, "string_data", "BYTES", "REPEATED"),
    (7, "name", "STRING", "OPTIONAL"),
    (9, "double_data", "DOUBLE", "PACKED"),
    (10, "int64_data", "INT64", "PACKED"),
]


def _messages():
    file = descriptor_pb2.FileDescriptorProto(name="tensors.proto", package="test", syntax="proto2")
    proto = file.message_type.add(name="TensorProto")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, name, kind, label in FIELDS:
        field = proto.field.add(name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"))
        field.label = kinds.LABEL_OPTIONAL if label == "OPTIONAL" else kinds.LABEL_REPEATED
        field.options.packed = label == "PACKED"
    segment = proto.nested_type.add(name="Segment")
    for number, name in ((1, "begin"), (2, "end")):
        segment.field.add(name=name, number=number, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    field = proto.field.add(name="segment", number=11, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL)
    field.type_name = ".test.TensorProto.Segment"
    protos = file.message_type.add(name="TensorProtos")
    protos.field.add(
        name="protos", number=1, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED, type_name=".test.TensorProto"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("test.TensorProtos"))
    return made, message_factory.GetMessageClass(pool.FindMessageTypeByName("test.TensorProto"))


TensorProtos, TensorProto = _messages()


def default_sample(pixels, label: int) -> bytes:
    """What TorchRecord's default function stores; pixels: uint8 [height, width, 3]."""
    picture = TensorProto(dims=[pixels.shape[1], pixels.shape[0]], data_type=3, byte_data=pixels.tobytes())
    return TensorProtos(protos=[picture, TensorProto(data_type=3, byte_data=str(label).encode())]).SerializeToString()
