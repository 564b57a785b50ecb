import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Starts a daemon in a home of its own; resolves when it answers. */
export async function startDaemon() {
  const release = fileURLToPath(new URL("../../../target/release", import.meta.url));
  const binary = join(process.env.SUBSTRAT_BIN_DIR || release, "substratd");
  if (!existsSync(binary)) {
    throw new Error(`${binary} is missing: run "make build" first`);
  }
  const settings = Object.entries(process.env).filter(([key]) => !key.startsWith("SUBSTRAT_"));
  const folder = mkdtempSync(join(tmpdir(), "substrat-"));
  const home = join(folder, "home");
  const child = spawn(binary, ["--home", home, "--background"], {
    env: Object.fromEntries(settings),
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const stop = async () => {
    child.kill("SIGKILL");
    await exited;
    rmSync(folder, { recursive: true });
  };
  for await (const line of createInterface(child.stdout)) {
    if (line.startsWith("ready ")) {
      return { socket: join(home, "substratd.sock"), stop };
    }
  }
  await stop();
  throw new Error("the daemon does not start");
}
