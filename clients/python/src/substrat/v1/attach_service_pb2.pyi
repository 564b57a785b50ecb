import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from substrat.v1 import attach_pb2 as _attach_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ("open", "input", "cancel", "heartbeat", "decision")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    open: _attach_pb2.AttachOpen
    input: _attach_pb2.AttachInput
    cancel: _attach_pb2.AttachCancel
    heartbeat: _attach_pb2.Heartbeat
    decision: _attach_pb2.PermissionDecision
    def __init__(self, open: _Optional[_Union[_attach_pb2.AttachOpen, _Mapping]] = ..., input: _Optional[_Union[_attach_pb2.AttachInput, _Mapping]] = ..., cancel: _Optional[_Union[_attach_pb2.AttachCancel, _Mapping]] = ..., heartbeat: _Optional[_Union[_attach_pb2.Heartbeat, _Mapping]] = ..., decision: _Optional[_Union[_attach_pb2.PermissionDecision, _Mapping]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("sequence", "time", "attached", "turn_started", "output_delta", "tool_call_started", "tool_call_finished", "message_seen", "turn_ended", "state_changed", "agent_crashed", "daemon_recovered", "daemon_draining", "lagged", "input_result", "heartbeat", "process_notice", "output_replaced", "permission_requested", "permission_resolved")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    TURN_STARTED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DELTA_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_STARTED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FINISHED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_SEEN_FIELD_NUMBER: _ClassVar[int]
    TURN_ENDED_FIELD_NUMBER: _ClassVar[int]
    STATE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    AGENT_CRASHED_FIELD_NUMBER: _ClassVar[int]
    DAEMON_RECOVERED_FIELD_NUMBER: _ClassVar[int]
    DAEMON_DRAINING_FIELD_NUMBER: _ClassVar[int]
    LAGGED_FIELD_NUMBER: _ClassVar[int]
    INPUT_RESULT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_NOTICE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_REPLACED_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    attached: _attach_pb2.Attached
    turn_started: _attach_pb2.TurnStarted
    output_delta: _attach_pb2.OutputDelta
    tool_call_started: _attach_pb2.ToolCallStarted
    tool_call_finished: _attach_pb2.ToolCallFinished
    message_seen: _attach_pb2.MessageSeen
    turn_ended: _attach_pb2.TurnEnded
    state_changed: _attach_pb2.StateChanged
    agent_crashed: _attach_pb2.AgentCrashed
    daemon_recovered: _attach_pb2.DaemonRecovered
    daemon_draining: _attach_pb2.DaemonDraining
    lagged: _attach_pb2.Lagged
    input_result: _attach_pb2.InputResult
    heartbeat: _attach_pb2.Heartbeat
    process_notice: _attach_pb2.ProcessNotice
    output_replaced: _attach_pb2.OutputReplaced
    permission_requested: _attach_pb2.PermissionRequested
    permission_resolved: _attach_pb2.PermissionResolved
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attached: _Optional[_Union[_attach_pb2.Attached, _Mapping]] = ..., turn_started: _Optional[_Union[_attach_pb2.TurnStarted, _Mapping]] = ..., output_delta: _Optional[_Union[_attach_pb2.OutputDelta, _Mapping]] = ..., tool_call_started: _Optional[_Union[_attach_pb2.ToolCallStarted, _Mapping]] = ..., tool_call_finished: _Optional[_Union[_attach_pb2.ToolCallFinished, _Mapping]] = ..., message_seen: _Optional[_Union[_attach_pb2.MessageSeen, _Mapping]] = ..., turn_ended: _Optional[_Union[_attach_pb2.TurnEnded, _Mapping]] = ..., state_changed: _Optional[_Union[_attach_pb2.StateChanged, _Mapping]] = ..., agent_crashed: _Optional[_Union[_attach_pb2.AgentCrashed, _Mapping]] = ..., daemon_recovered: _Optional[_Union[_attach_pb2.DaemonRecovered, _Mapping]] = ..., daemon_draining: _Optional[_Union[_attach_pb2.DaemonDraining, _Mapping]] = ..., lagged: _Optional[_Union[_attach_pb2.Lagged, _Mapping]] = ..., input_result: _Optional[_Union[_attach_pb2.InputResult, _Mapping]] = ..., heartbeat: _Optional[_Union[_attach_pb2.Heartbeat, _Mapping]] = ..., process_notice: _Optional[_Union[_attach_pb2.ProcessNotice, _Mapping]] = ..., output_replaced: _Optional[_Union[_attach_pb2.OutputReplaced, _Mapping]] = ..., permission_requested: _Optional[_Union[_attach_pb2.PermissionRequested, _Mapping]] = ..., permission_resolved: _Optional[_Union[_attach_pb2.PermissionResolved, _Mapping]] = ...) -> None: ...
