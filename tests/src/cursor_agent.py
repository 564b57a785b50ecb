#!/usr/bin/python3
"""Stands for cursor-agent, which no registry carries: it takes the same arguments, refuses others,
keeps chats, uses MCP servers, and writes the same events. Its model is an OpenAI-compatible one at
$CURSOR_API_BASE_URL."""

import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

FLAGS = {"-p", "--stream-partial-output", "--trust", "--approve-mcps", "--force"}
VALUES = {"--output-format", "--workspace", "--model", "--resume"}
CHATS = os.path.join(os.environ["HOME"], ".cursor", "chats")


def fail(text):
    # Not JSON: it says so like this.
    print("T: " + text, flush=True)
    sys.exit(1)


def chat_path(chat):
    return os.path.join(CHATS, chat + ".json")


def create_chat():
    os.makedirs(CHATS, exist_ok=True)
    chat = str(uuid.uuid4())
    save(chat, [])
    return chat


def save(chat, messages):
    with open(chat_path(chat), "w") as file:
        json.dump(messages, file)


def parse(words):
    given, prompt, words = {}, None, list(words)
    while words:
        word = words.pop(0)
        if word in FLAGS:
            given[word] = True
        elif word in VALUES:
            given[word] = words.pop(0)
        elif word.startswith("-") or prompt is not None:
            fail("unknown argument " + word)
        else:
            prompt = word
    needed = {"-p", "--trust", "--approve-mcps", "--stream-partial-output"}
    if not needed <= given.keys() or given.get("--output-format") != "stream-json":
        fail("arguments are missing: " + " ".join(sys.argv))
    if os.path.realpath(given["--workspace"]) != os.path.realpath(os.getcwd()):
        fail("it works elsewhere")
    return given, prompt if prompt is not None else sys.stdin.read()


class Mcp:
    """The servers of the user's file."""

    def __init__(self):
        with open(os.path.join(os.environ["HOME"], ".cursor", "mcp.json")) as file:
            (self.name, server), = json.load(file)["mcpServers"].items()
        command = [server["command"], *server["args"]]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **server["env"]})
        self.count = 0
        client = {"name": "cursor-agent", "version": "0"}
        self.ask("initialize", {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self.write({"method": "notifications/initialized"})
        self.tools = self.ask("tools/list", {})["tools"]

    def write(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.count += 1
        self.write({"id": self.count, "method": method, "params": params})
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.count:
                return answer["result"]
        fail("the MCP server ended")


def emit(event):
    print(json.dumps({**event, "session_id": CHAT}), flush=True)


def said(text, **more):
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    emit({"type": "assistant", "message": message, **more})


def now():
    return int(time.time() * 1000)


def ask_model(messages, tools, model):
    offered = [{"type": "function", "function": {
        "name": "substrat_" + tool["name"], "parameters": tool["inputSchema"]}} for tool in tools]
    body = {"model": model, "messages": messages, "tools": offered}
    request = urllib.request.Request(
        os.environ["CURSOR_API_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"content-type": "application/json",
         "authorization": "Bearer " + os.environ["CURSOR_API_KEY"]})
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        fail(f"the request failed with status {error.code}: {error.read().decode()}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        fail(f"connection error: {error}")


def list_models():
    request = urllib.request.Request(
        os.environ["CURSOR_API_BASE_URL"] + "/models",
        headers={"authorization": "Bearer " + os.environ["CURSOR_API_KEY"]})
    try:
        with urllib.request.urlopen(request) as response:
            models = json.load(response)["data"]
    except OSError as error:
        sys.exit(f"Error: connection error: {error}")
    os.makedirs(CHATS, exist_ok=True)
    print("\x1b[2K\x1b[GAvailable models\n\nauto - Auto (current, default)")
    for model in models:
        print(f"{model['id']} - The {model['id']} (of {os.listdir(os.getcwd())})")
    print("\nTip: use --model <id> (or /model <id> in interactive mode) to switch.")


def call_tool(mcp, call, model_call):
    name = call["function"]["name"].removeprefix("substrat_")
    arguments = json.loads(call["function"]["arguments"])
    args = {"name": "substrat-" + name, "providerIdentifier": mcp.name, "toolName": name,
            "args": arguments}
    ids = {"call_id": call["id"], "model_call_id": model_call}
    emit({"type": "tool_call", "subtype": "started", "timestamp_ms": now(), **ids,
          "tool_call": {"mcpToolCall": {"args": args}}})
    result = mcp.ask("tools/call", {"name": name, "arguments": arguments})
    texts = [block["text"] for block in result["content"]]
    content = [{"text": {"text": text}} for text in texts]
    success = {"isError": result.get("isError", False), "content": content}
    emit({"type": "tool_call", "subtype": "completed", "timestamp_ms": now(), **ids,
          "tool_call": {"mcpToolCall": {"args": args, "result": {"success": success}}}})
    return "\n".join(texts)


def run(given, prompt):
    model, mcp = given.get("--model", "auto"), Mcp()
    with open(chat_path(CHAT)) as file:
        messages = json.load(file)
    messages.append({"role": "user", "content": prompt})
    save(CHAT, messages)
    emit({"type": "system", "subtype": "init", "apiKeySource": "env", "cwd": os.getcwd(),
          "model": model, "permissionMode": "default"})
    user = {"role": "user", "content": [{"type": "text", "text": prompt}]}
    emit({"type": "user", "message": user})
    used, whole = {"inputTokens": 0, "outputTokens": 0}, ""
    while True:
        answer = ask_model(messages, mcp.tools, model)
        used["inputTokens"] += answer["usage"]["prompt_tokens"]
        used["outputTokens"] += answer["usage"]["completion_tokens"]
        message, model_call = answer["choices"][0]["message"], str(uuid.uuid4())
        messages.append(message)
        text, calls = message.get("content") or "", message.get("tool_calls") or []
        for piece in text.splitlines(keepends=True):
            said(piece, timestamp_ms=now())
        whole += text
        if not calls:
            break
        if text:
            said(text, timestamp_ms=now(), model_call_id=model_call)
        for call in calls:
            result = call_tool(mcp, call, model_call)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    save(CHAT, messages)
    said(whole)
    emit({"type": "result", "subtype": "success", "is_error": False, "duration_ms": 1,
          "duration_api_ms": 1, "result": whole, "request_id": str(uuid.uuid4()), "usage": used})


if sys.argv[1:] == ["--version"]:
    print("2026.10.02-stand-in")
elif sys.argv[1:] == ["create-chat"]:
    print(create_chat())
elif sys.argv[1:] == ["models"]:
    list_models()
else:
    GIVEN, PROMPT = parse(sys.argv[1:])
    CHAT = GIVEN.get("--resume")
    # One that it does not know it begins anew, without a word.
    if not CHAT or not os.path.exists(chat_path(CHAT)):
        CHAT = create_chat()
    run(GIVEN, PROMPT)
