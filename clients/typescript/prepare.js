// A linked package finds its dependencies only beside itself, and npm does not put them there.
// npm 11 and older run this after linking; unless they are found, it installs them.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));
try {
  Object.keys(dependencies).forEach((name) => import.meta.resolve(name));
} catch {
  const command = ["ci", "--omit=dev", "--ignore-scripts"];
  execFileSync("npm", command, { cwd: new URL(".", import.meta.url), stdio: "inherit" });
}
