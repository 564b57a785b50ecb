"""The generated client against a real daemon."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest
import substrat
from conftest import PACKAGE
from google.protobuf.json_format import MessageToDict
from substrat.v1 import agent_service_pb2_grpc
from substrat.v1.agent_pb2 import Agent
from substrat.v1.agent_service_pb2 import (
    CreateAgentRequest,
    GetAgentRequest,
    SendMessageRequest,
)
from substrat.v1.agent_service_pb2_grpc import AgentServiceStub
from substrat.v1.attach_pb2 import TURN_OUTCOME_COMPLETED, AttachInput, AttachOpen
from substrat.v1.attach_service_pb2 import AttachRequest
from substrat.v1.attach_service_pb2_grpc import AttachServiceStub
from substrat.v1.session_service_pb2 import WatchEventsRequest
from substrat.v1.session_service_pb2_grpc import SessionServiceStub

SCRIPT = 'fn turn(prompt) { "You said: " + prompt }'
# Seconds after which a call that hangs fails the test.
PATIENCE = 60


@pytest.fixture
def channel(socket: Path) -> Iterator[grpc.Channel]:
    with substrat.channel(socket) as channel:
        yield channel


def create(channel: grpc.Channel, name: str) -> Agent:
    request = CreateAgentRequest(name=name, instructions=SCRIPT)
    return AgentServiceStub(channel).CreateAgent(request, timeout=PATIENCE).agent


def test_an_agent_answers_a_message(channel: grpc.Channel) -> None:
    agent = create(channel, "answers")
    request = SendMessageRequest(agent=agent.path, text="hello")
    response = AgentServiceStub(channel).SendMessage(request, timeout=PATIENCE)
    assert response.answered
    assert response.answer == "You said: hello"


def test_an_attached_client_talks_and_sees_the_turn(channel: grpc.Channel) -> None:
    agent = create(channel, "attached")
    requests: SimpleQueue[AttachRequest | None] = SimpleQueue()
    requests.put(AttachRequest(open=AttachOpen(agent=agent.id)))
    stream = AttachServiceStub(channel).Attach(iter(requests.get, None), timeout=PATIENCE)
    assert next(stream).attached.agent.id == agent.id

    requests.put(AttachRequest(input=AttachInput(text="hello", request_id="first")))
    seen = {}
    for response in stream:
        item = response.WhichOneof("item")
        assert item is not None
        seen[item] = response
        if {"input_result", "turn_ended"} <= seen.keys():
            break
    assert seen["input_result"].input_result.request_id == "first"
    assert seen["input_result"].input_result.message_id
    assert seen["turn_started"].sequence < seen["turn_ended"].sequence
    assert seen["turn_ended"].turn_ended.outcome == TURN_OUTCOME_COMPLETED
    assert seen["turn_ended"].turn_ended.response == "You said: hello"

    requests.put(None)
    stream.cancel()


def test_events_are_watched_as_they_happen(channel: grpc.Channel) -> None:
    agent = create(channel, "watched")
    request = WatchEventsRequest(agent=agent.id, from_sequence=agent.last_sequence + 1)
    events = SessionServiceStub(channel).WatchEvents(request, timeout=PATIENCE)
    sent = SendMessageRequest(agent=agent.id, text="hello", no_wait=True)
    AgentServiceStub(channel).SendMessage(sent, timeout=PATIENCE)

    seen = []
    for response in events:
        seen.append(response.event)
        if response.event.type == "turn.complete":
            break
    events.cancel()
    assert "turn.start" in [event.type for event in seen]
    assert {event.agent_id for event in seen} == {agent.id}
    sequences = [event.sequence for event in seen]
    assert sequences == sorted(set(sequences))
    assert MessageToDict(seen[-1].data)["response"] == "You said: hello"


def test_a_refusal_says_its_reason(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        AgentServiceStub(channel).GetAgent(GetAgentRequest(agent="nobody"), timeout=PATIENCE)
    info = substrat.error_info(caught.value)
    assert info is not None
    assert (info.domain, info.reason) == ("substrat", "AGENT_NOT_FOUND")


def test_a_failure_without_details_has_no_reason(tmp_path: Path) -> None:
    with substrat.channel(tmp_path / "nothing.sock") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            AgentServiceStub(channel).GetAgent(GetAgentRequest(agent="nobody"), timeout=PATIENCE)
    assert substrat.error_info(caught.value) is None


def test_the_same_stubs_serve_asyncio(socket: Path) -> None:
    async def talk() -> str:
        async with substrat.aio_channel(socket) as channel:
            agents = AgentServiceStub(channel)
            create = CreateAgentRequest(name="awaited", instructions=SCRIPT)
            await agents.CreateAgent(create, timeout=PATIENCE)
            with pytest.raises(grpc.RpcError) as caught:
                await agents.CreateAgent(create, timeout=PATIENCE)
            info = substrat.error_info(caught.value)
            assert info is not None and info.reason == "AGENT_EXISTS"
            send = SendMessageRequest(agent="awaited", text="hello")
            response = await agents.SendMessage(send, timeout=PATIENCE)
            return response.answer

    assert asyncio.run(talk()) == "You said: hello"


def test_the_example_in_the_readme_works(socket: Path) -> None:
    example = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert example is not None
    done = subprocess.run(
        [sys.executable, "-c", example[1]],
        env=os.environ | {"SUBSTRAT_SOCKET": str(socket)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("You said: hello\n", "")


def test_the_package_asks_for_what_its_code_was_generated_for() -> None:
    """Both libraries refuse generated code that is newer than they are."""
    source = Path(agent_service_pb2_grpc.__file__).with_name("agent_service_pb2.py").read_text()
    protobuf = re.search(r"^# Protobuf Python Version: (.*)$", source, re.MULTILINE)
    assert protobuf is not None
    lowest = {
        "grpcio": agent_service_pb2_grpc.GRPC_GENERATED_VERSION,
        "protobuf": protobuf[1],
    }
    asked = [re.split(r"[ ,]+", requirement) for requirement in requires("substrat") or []]
    bounds = {part[0]: part[1:] for part in asked}
    for name, version in lowest.items():
        assert f">={version}" in bounds[name]
