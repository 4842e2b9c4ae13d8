// Runs a scenario on `eno ui`: node test/run.mjs SCENARIO. ENO_UI_URL is the one-time URL, ENO_SHOTS the folder of
// screenshots, ENO_CHROMIUM the browser, ENO_INPUT what the scenario needs to know, as JSON. Where the scenario needs a
// change outside, it prints `STEP name` and waits for a line `done` or `done JSON`.
import { readdir } from "node:fs/promises";
import { World } from "./lib.mjs";

const [scenario] = process.argv.slice(2);
const folder = new URL("scenarios/", import.meta.url);
const known = (await readdir(folder)).map((file) => file.replace(/\.mjs$/, ""));
const url = process.env.ENO_UI_URL;
if (!known.includes(scenario) || !url) {
  console.error(`usage: ENO_UI_URL=URL node test/run.mjs SCENARIO, one of ${known.join(", ")}`);
  process.exit(2);
}
const { default: run } = await import(new URL(`${scenario}.mjs`, folder));
const world = new World(scenario);
let code = 0;
const limit = Number(process.env.ENO_LIMIT_MS ?? 240_000);
let late;
const tooLate = new Promise((_, reject) => {
  late = setTimeout(() => reject(new Error(`${scenario} took longer than ${limit / 1000} s`)), limit);
});
const interrupted = new Promise((_, reject) => {
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => reject(new Error(signal)));
});
const orphaned = world.orphaned.then(() => Promise.reject(new Error("the caller ended")));
try {
  const all = async () => {
    await world.start(url);
    await run(world);
    world.noProblems();
  };
  await Promise.race([all(), tooLate, interrupted, orphaned]);
} catch (error) {
  code = 1;
  console.error(`${error.name === "Error" ? error.message : error.stack ?? error}`);
  if (world.problems.length > 0) console.error(`and:\n${world.problems.join("\n")}`);
  await world.shot("failure").catch(() => undefined);
}
clearTimeout(late);
await world.close().catch((error) => console.error(error));
process.exit(code);
