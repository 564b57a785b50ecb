"""A public MCP client uses an agent's tools through `substratctl mcp`."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import substrat
from conftest import binary, running
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent
from substrat.v1.agent_pb2 import Agent
from substrat.v1.agent_service_pb2 import (
    CreateAgentRequest,
    ListAgentsRequest,
    SendMessageRequest,
)
from substrat.v1.agent_service_pb2_grpc import AgentServiceStub
from substrat.v1.session_service_pb2 import WatchEventsRequest
from substrat.v1.session_service_pb2_grpc import SessionServiceStub
from substrat.v1.workspace_service_pb2 import CreateWorkspaceRequest
from substrat.v1.workspace_service_pb2_grpc import WorkspaceServiceStub

# Seconds after which a call that hangs fails the test.
PATIENCE = 60
ECHO = 'fn turn(prompt) { "you said: " + messages()[0].text }'
# Its turn stays open until the file is there.
HOLD = """fn turn(prompt) {
    if messages()[0].text != "hold" { return "heard"; }
    let open = true;
    while open {
        sleep_ms(20);
        try { read_file("released"); open = false; } catch {}
    }
    "held"
}"""

Result = dict[str, Any]


@dataclass
class Row:
    """A call of a tool, and what must hold of its result, or stand in its refusal.

    `taken` are arguments that an earlier call returned: the tool and the key of its result.
    """

    arguments: dict[str, Any]
    holds: Callable[[Result], bool] | str
    taken: dict[str, str] = field(default_factory=dict)

    def all_arguments(self, results: dict[str, Result]) -> dict[str, Any]:
        return self.arguments | {key: results[tool][key] for key, tool in self.taken.items()}


def says(status: str) -> Callable[[Result], bool]:
    return lambda result: bool(result["status"] == status)


# Every tool that the worker is offered, called in this order. A new tool gets a row.
ROWS = {
    "send_message": Row(
        {"recipient": "echo", "text": "größe"},
        lambda result: bool(result["text"] == "you said: größe"),
    ),
    "broadcast": Row({"text": "all"}, lambda result: bool(result["recipient_count"] == 2)),
    "check_inbox": Row({"kind": "error"}, lambda result: bool(result["messages"] == [])),
    "spawn_agent": Row(
        {"name": "spawned", "instructions": ECHO, "metadata": {"k": "v"}},
        lambda result: bool(result["status"] == "accepted"),
    ),
    "inspect_agent": Row({"name": "parent"}, lambda result: bool(result["name"] == "lead")),
    "list_children": Row(
        {}, lambda result: {child["name"] for child in result["children"]} == {"echo", "spawned"}
    ),
    "write_file": Row(
        {"path": "a/b.txt", "content": "one\n"}, lambda result: bool(result["bytes"] == 4)
    ),
    "read_file": Row({"path": "a/b.txt"}, lambda result: bool(result["text"] == "one\n")),
    "list_files": Row(
        {"recursive": True},
        lambda result: [entry["path"] for entry in result["entries"]] == ["a", "a/b.txt"],
    ),
    "run_command": Row(
        {"command": "pwd; cat a/b.txt"},
        lambda result: result["output"] == "/workspace\none\n" and result["exit_code"] == 0,
    ),
    "create_workspace": Row({"name": "lab"}, says("created")),
    "link_dir": Row(
        {"workspace": "lab", "source": "a", "target": "a", "mode": "rw"}, says("linked")
    ),
    "link_from": Row({"source_workspace": "lab", "source": "", "target": "no"}, "linked below it"),
    "list_workspaces": Row(
        {}, lambda result: [one["name"] for one in result["workspaces"]] == ["desk", "lab"]
    ),
    "unlink_dir": Row({"workspace": "lab", "target": "a"}, says("unlinked")),
    "delete_workspace": Row({"workspace": "lab"}, says("deleted")),
    "remind_me": Row({"reason": "tea", "after": 3600}, says("set")),
    "cancel_reminder": Row({}, says("cancelled"), taken={"reminder_id": "remind_me"}),
    "subscribe": Row({"agent_name": "b", "transition": "busy->idle"}, says("subscribed")),
    "unsubscribe": Row({}, says("unsubscribed"), taken={"subscription_id": "subscribe"}),
    "gate": Row({"agent_name": "echo"}, says("gated")),
    "permit_turn": Row({"agent_name": "echo"}, says("permitted")),
    "ungate": Row({"agent_name": "echo"}, says("ungated")),
    "set_agent_metadata": Row({"agent_name": "echo", "key": "k", "value": "v"}, says("set")),
    "poke": Row({"agent_name": "echo"}, says("poked")),
    # It would end the agent that the others are called as.
    "complete": Row({"result": "done"}, "children"),
}


@dataclass
class Team:
    """A daemon with an agent whose turn is open, among a parent, siblings and children."""

    home: Path
    api: Path
    agent: Agent
    other: Agent

    def tool_socket(self, agent: Agent) -> Path:
        return self.home / "run" / f"{agent.session_id}.sock"


@pytest.fixture
def team() -> Iterator[Team]:
    with running("scripted.tool_socket=true") as api, substrat.channel(api) as channel:
        agents, sessions = AgentServiceStub(channel), SessionServiceStub(channel)
        WorkspaceServiceStub(channel).CreateWorkspace(CreateWorkspaceRequest(name="desk"))

        def create(name: str, script: str, parent: str = "") -> Agent:
            request = CreateAgentRequest(
                name=name, instructions=script, parent=parent, workspace="desk"
            )
            return agents.CreateAgent(request, timeout=PATIENCE).agent

        create("lead", ECHO)
        agent = create("worker", HOLD, "lead")
        # A child, and two siblings, one of them with an open turn, too.
        create("echo", ECHO, "worker")
        create("b", ECHO, "lead")
        other = create("other", HOLD, "lead")
        for name in ("worker", "other"):
            agents.SendMessage(SendMessageRequest(agent=name, text="hold", no_wait=True))
            watch = WatchEventsRequest(agent=name, from_sequence=1, types=["tool_call.invoked"])
            events = sessions.WatchEvents(watch, timeout=PATIENCE)
            next(events)
            events.cancel()
        yield Team(api.parent, api, agent, other)


@asynccontextmanager
async def session(socket: Path) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(
        command=str(binary("substratctl")),
        args=["mcp"],
        env={"SUBSTRAT_TOOL_SOCKET": str(socket)},
    )
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        async with asyncio.timeout(PATIENCE):
            await session.initialize()
            yield session


async def call(session: ClientSession, name: str, arguments: dict[str, Any]) -> CallToolResult:
    result = await session.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    return result


def text(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


def test_every_tool_is_listed_and_called(team: Team) -> None:
    async def use() -> None:
        async with session(team.tool_socket(team.agent)) as tools:
            listed = {tool.name: tool for tool in (await tools.list_tools()).tools}
            new, gone = listed.keys() - ROWS.keys(), ROWS.keys() - listed.keys()
            assert not new, f"add a row to ROWS in {__file__} for: {', '.join(sorted(new))}"
            assert not gone, f"ROWS in {__file__} has tools that are not listed: {gone}"
            results: dict[str, Result] = {}
            for name, row in ROWS.items():
                tool, arguments = listed[name], row.all_arguments(results)
                assert tool.description and tool.input_schema["type"] == "object", name
                assert arguments.keys() <= tool.input_schema.get("properties", {}).keys(), name
                result = await call(tools, name, arguments)
                if isinstance(row.holds, str):
                    assert result.is_error and row.holds in text(result), (name, result)
                else:
                    assert not result.is_error, (name, result)
                    assert result.structured_content is not None, name
                    assert json.loads(text(result)) == result.structured_content, name
                    assert row.holds(result.structured_content), (name, result)
                    results[name] = result.structured_content

    asyncio.run(use())


def test_a_bad_call_is_refused_with_a_reason(team: Team) -> None:
    async def use() -> None:
        async with session(team.tool_socket(team.agent)) as tools:
            odd = await call(tools, "send_message", {"recipient": 7, "text": "x"})
            assert odd.is_error and "bad arguments for send_message" in text(odd)
            with pytest.raises(MCPError, match="unknown tool"):
                await tools.call_tool("fly_away", {})

    asyncio.run(use())


def test_the_tools_of_an_agent_reach_no_other_and_not_the_api(team: Team) -> None:
    async def use() -> None:
        async with session(team.tool_socket(team.agent)) as tools:
            # Beyond its parent, siblings and children there is nobody.
            for name, arguments in [
                ("send_message", {"recipient": "stranger", "text": "x"}),
                ("send_message", {"recipient": "USER", "text": "x"}),
                ("inspect_agent", {"name": "stranger"}),
            ]:
                refused = await call(tools, name, arguments)
                assert refused.is_error, (name, refused)
            assert (await tools.list_resources()).resources == []
        # Another socket is another agent; nothing in a call says which.
        for agent in (team.agent, team.other):
            async with session(team.tool_socket(agent)) as tools:
                seen = await call(tools, "inspect_agent", {"name": "parent"})
                assert not seen.is_error
                told = {"recipient": "parent", "text": "hello", "sync": False}
                assert not (await call(tools, "send_message", told)).is_error

    with substrat.channel(team.api) as channel:
        create = CreateAgentRequest(name="stranger", instructions=ECHO)
        AgentServiceStub(channel).CreateAgent(create, timeout=PATIENCE)
        asyncio.run(use())
        watch = WatchEventsRequest(agent="lead", from_sequence=1, types=["message.enqueued"])
        events = SessionServiceStub(channel).WatchEvents(watch, timeout=PATIENCE)
        senders = [str(next(events).event.data["sender_name"]) for _ in range(2)]
        events.cancel()
        assert senders == ["worker", "other"]
    with substrat.channel(team.tool_socket(team.agent)) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            AgentServiceStub(channel).ListAgents(ListAgentsRequest(), timeout=PATIENCE)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
