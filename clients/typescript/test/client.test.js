import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { PassThrough } from "node:stream";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { Code, ConnectError, createClient, createUnixTransport, errorInfo } from "@substrat/client";
import { AgentService } from "@substrat/client/v1/agent_service_pb";
import { TurnOutcome } from "@substrat/client/v1/attach_pb";
import { AttachService } from "@substrat/client/v1/attach_service_pb";
import { SessionService } from "@substrat/client/v1/session_service_pb";
import { startDaemon } from "./daemon.js";

const SCRIPT = 'fn turn(prompt) { "You said: " + prompt }';
// Milliseconds after which a call that hangs fails the test.
const PATIENCE = 60_000;
const CALL = { timeoutMs: PATIENCE };

/** @type {Awaited<ReturnType<typeof startDaemon>>} */
let daemon;
/** @type {import("@connectrpc/connect").Client<typeof AgentService>} */
let agents;

before(async () => {
  daemon = await startDaemon();
  agents = createClient(AgentService, createUnixTransport(daemon.socket));
});
after(() => daemon?.stop());

/** @param {string} name */
async function create(name) {
  const { agent } = await agents.createAgent({ name, instructions: SCRIPT }, CALL);
  assert(agent);
  return agent;
}

test("an agent answers a message", async () => {
  const agent = await create("answers");
  const response = await agents.sendMessage({ agent: agent.path, text: "hello" }, CALL);
  assert.equal(response.answered, true);
  assert.equal(response.answer, "You said: hello");
});

test("an attached client talks and sees the turn", { timeout: PATIENCE }, async () => {
  const agent = await create("attached");
  const requests = new PassThrough({ objectMode: true });
  requests.write({ request: { case: "open", value: { agent: agent.id } } });
  const client = createClient(AttachService, createUnixTransport(daemon.socket));
  /** @type {any} */
  const seen = {};
  const end = new AbortController();
  for await (const { item, sequence } of client.attach(requests, { signal: end.signal })) {
    assert(item.case);
    seen[item.case] = { ...item.value, sequence };
    if (item.case === "attached") {
      const value = { text: "hello", requestId: "first" };
      requests.write({ request: { case: "input", value } });
    }
    if (seen.inputResult && seen.turnEnded) {
      break;
    }
  }
  end.abort();
  assert.equal(seen.attached.agent.id, agent.id);
  assert.equal(seen.inputResult.requestId, "first");
  assert.notEqual(seen.inputResult.messageId, "");
  assert(seen.turnStarted.sequence < seen.turnEnded.sequence);
  assert.equal(seen.turnEnded.outcome, TurnOutcome.COMPLETED);
  assert.equal(seen.turnEnded.response, "You said: hello");
});

test("events are watched as they happen", { timeout: PATIENCE }, async () => {
  const agent = await create("watched");
  const sessions = createClient(SessionService, createUnixTransport(daemon.socket));
  const request = { agent: agent.id, fromSequence: agent.lastSequence + 1n };
  const end = new AbortController();
  const events = sessions.watchEvents(request, { signal: end.signal });
  await agents.sendMessage({ agent: agent.id, text: "hello", noWait: true }, CALL);

  const seen = [];
  for await (const { event } of events) {
    assert(event);
    seen.push(event);
    if (event.type === "turn.complete") {
      break;
    }
  }
  end.abort();
  assert(seen.some((event) => event.type === "turn.start"));
  assert(seen.every((event) => event.agentId === agent.id));
  const sequences = seen.map((event) => event.sequence);
  assert(sequences.every((sequence, index) => index === 0 || sequences[index - 1] < sequence));
  assert.equal(seen.at(-1)?.data?.response, "You said: hello");
});

test("a refusal says its reason", async () => {
  await assert.rejects(agents.getAgent({ agent: "nobody" }, CALL), (error) => {
    assert(error instanceof ConnectError);
    assert.equal(error.code, Code.NotFound);
    assert.equal(errorInfo(error)?.domain, "substrat");
    assert.equal(errorInfo(error)?.reason, "AGENT_NOT_FOUND");
    return true;
  });
});

test("a failure without details has no reason", async () => {
  const nobody = createClient(AgentService, createUnixTransport(`${daemon.socket}.nothing`));
  await assert.rejects(nobody.listAgents({}, CALL), (error) => {
    assert(error instanceof ConnectError);
    assert.equal(errorInfo(error), undefined);
    return true;
  });
});

test("the example in the README works", async () => {
  const folder = fileURLToPath(new URL("..", import.meta.url));
  const example = /```js\n(.*?)```/s.exec(readFileSync(join(folder, "README.md"), "utf8"))?.[1];
  assert(example);
  // Projects that the package is installed in, or else the package itself.
  const projects = process.env.CLIENT_PROJECTS?.split(delimiter) ?? [folder];
  const env = { ...process.env, SUBSTRAT_SOCKET: daemon.socket };
  const runs = projects.map((cwd, index) => {
    const code = example.replaceAll("echo", `echo-${index}`);
    return promisify(execFile)(process.execPath, ["--input-type=module", "-e", code], { cwd, env });
  });
  for (const done of await Promise.all(runs)) {
    assert.deepEqual(done, { stdout: "You said: hello\n", stderr: "" });
  }
});
