from substrat.v1 import exec_pb2 as _exec_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecRequest(_message.Message):
    __slots__ = ("open", "input", "end_of_input", "resize", "signal")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    END_OF_INPUT_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    open: _exec_pb2.ExecOpen
    input: bytes
    end_of_input: bool
    resize: _exec_pb2.TerminalSize
    signal: _exec_pb2.ExecSignal
    def __init__(self, open: _Optional[_Union[_exec_pb2.ExecOpen, _Mapping]] = ..., input: _Optional[bytes] = ..., end_of_input: _Optional[bool] = ..., resize: _Optional[_Union[_exec_pb2.TerminalSize, _Mapping]] = ..., signal: _Optional[_Union[_exec_pb2.ExecSignal, str]] = ...) -> None: ...

class ExecResponse(_message.Message):
    __slots__ = ("started", "stdout", "stderr", "exited")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    started: _exec_pb2.ExecStarted
    stdout: bytes
    stderr: bytes
    exited: _exec_pb2.ExecExited
    def __init__(self, started: _Optional[_Union[_exec_pb2.ExecStarted, _Mapping]] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., exited: _Optional[_Union[_exec_pb2.ExecExited, _Mapping]] = ...) -> None: ...
