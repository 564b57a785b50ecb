import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from substrat.v1 import daemon_pb2 as _daemon_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetDaemonRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDaemonResponse(_message.Message):
    __slots__ = ("daemon",)
    DAEMON_FIELD_NUMBER: _ClassVar[int]
    daemon: _daemon_pb2.Daemon
    def __init__(self, daemon: _Optional[_Union[_daemon_pb2.Daemon, _Mapping]] = ...) -> None: ...

class GetConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetConfigResponse(_message.Message):
    __slots__ = ("path", "values")
    PATH_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    path: str
    values: _containers.RepeatedCompositeFieldContainer[_daemon_pb2.ConfigValue]
    def __init__(self, path: _Optional[str] = ..., values: _Optional[_Iterable[_Union[_daemon_pb2.ConfigValue, _Mapping]]] = ...) -> None: ...

class ReloadConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadConfigResponse(_message.Message):
    __slots__ = ("added_providers", "changed_providers", "removed_providers", "changed_keys", "restart_keys")
    ADDED_PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_KEYS_FIELD_NUMBER: _ClassVar[int]
    RESTART_KEYS_FIELD_NUMBER: _ClassVar[int]
    added_providers: _containers.RepeatedScalarFieldContainer[str]
    changed_providers: _containers.RepeatedScalarFieldContainer[str]
    removed_providers: _containers.RepeatedScalarFieldContainer[str]
    changed_keys: _containers.RepeatedScalarFieldContainer[str]
    restart_keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, added_providers: _Optional[_Iterable[str]] = ..., changed_providers: _Optional[_Iterable[str]] = ..., removed_providers: _Optional[_Iterable[str]] = ..., changed_keys: _Optional[_Iterable[str]] = ..., restart_keys: _Optional[_Iterable[str]] = ...) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ("deadline",)
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    deadline: _duration_pb2.Duration
    def __init__(self, deadline: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ShutdownResponse(_message.Message):
    __slots__ = ("running_turns",)
    RUNNING_TURNS_FIELD_NUMBER: _ClassVar[int]
    running_turns: int
    def __init__(self, running_turns: _Optional[int] = ...) -> None: ...
