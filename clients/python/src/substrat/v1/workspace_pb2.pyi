import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_MODE_UNSPECIFIED: _ClassVar[LinkMode]
    LINK_MODE_READ_ONLY: _ClassVar[LinkMode]
    LINK_MODE_READ_WRITE: _ClassVar[LinkMode]
LINK_MODE_UNSPECIFIED: LinkMode
LINK_MODE_READ_ONLY: LinkMode
LINK_MODE_READ_WRITE: LinkMode

class Workspace(_message.Message):
    __slots__ = ("id", "name", "parent_id", "root", "links", "agent_ids", "create_time")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    AGENT_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    parent_id: str
    root: str
    links: _containers.RepeatedCompositeFieldContainer[Link]
    agent_ids: _containers.RepeatedScalarFieldContainer[str]
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., parent_id: _Optional[str] = ..., root: _Optional[str] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., agent_ids: _Optional[_Iterable[str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("host_path", "mount_path", "mode")
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    MOUNT_PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    host_path: str
    mount_path: str
    mode: LinkMode
    def __init__(self, host_path: _Optional[str] = ..., mount_path: _Optional[str] = ..., mode: _Optional[_Union[LinkMode, str]] = ...) -> None: ...
