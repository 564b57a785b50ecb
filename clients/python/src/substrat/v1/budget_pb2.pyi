from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BudgetScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUDGET_SCOPE_UNSPECIFIED: _ClassVar[BudgetScope]
    BUDGET_SCOPE_AGENT: _ClassVar[BudgetScope]
    BUDGET_SCOPE_TREE: _ClassVar[BudgetScope]

class BudgetMeasure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUDGET_MEASURE_UNSPECIFIED: _ClassVar[BudgetMeasure]
    BUDGET_MEASURE_TOKENS: _ClassVar[BudgetMeasure]
    BUDGET_MEASURE_COST: _ClassVar[BudgetMeasure]
    BUDGET_MEASURE_TURNS: _ClassVar[BudgetMeasure]
BUDGET_SCOPE_UNSPECIFIED: BudgetScope
BUDGET_SCOPE_AGENT: BudgetScope
BUDGET_SCOPE_TREE: BudgetScope
BUDGET_MEASURE_UNSPECIFIED: BudgetMeasure
BUDGET_MEASURE_TOKENS: BudgetMeasure
BUDGET_MEASURE_COST: BudgetMeasure
BUDGET_MEASURE_TURNS: BudgetMeasure

class Usage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_micro_usd", "turns")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_READ_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICRO_USD_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_micro_usd: int
    turns: int
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cache_read_tokens: _Optional[int] = ..., cache_write_tokens: _Optional[int] = ..., cost_micro_usd: _Optional[int] = ..., turns: _Optional[int] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("tokens", "cost_micro_usd", "turns")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICRO_USD_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    cost_micro_usd: int
    turns: int
    def __init__(self, tokens: _Optional[int] = ..., cost_micro_usd: _Optional[int] = ..., turns: _Optional[int] = ...) -> None: ...

class BudgetExcess(_message.Message):
    __slots__ = ("scope", "agent_id", "agent_path", "measure", "used", "limit")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_PATH_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    scope: BudgetScope
    agent_id: str
    agent_path: str
    measure: BudgetMeasure
    used: int
    limit: int
    def __init__(self, scope: _Optional[_Union[BudgetScope, str]] = ..., agent_id: _Optional[str] = ..., agent_path: _Optional[str] = ..., measure: _Optional[_Union[BudgetMeasure, str]] = ..., used: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...
