// Bundles each src/**/*.test.ts into a temporary folder, and runs them with Node's test runner.
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const out = await mkdtemp(join(tmpdir(), "eno-console-"));
try {
  const files = await readdir("src", { recursive: true });
  await build({
    entryPoints: files.filter((f) => f.endsWith(".test.ts")).map((f) => join("src", f)),
    outdir: out,
    outbase: "src",
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node18",
    sourcemap: "inline",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  });
  const tests = (await readdir(out, { recursive: true })).filter((f) => f.endsWith(".test.mjs"));
  const run = spawnSync(process.execPath, ["--test", "--enable-source-maps", ...tests.sort()], {
    cwd: out,
    stdio: "inherit",
    timeout: 60_000,
  });
  process.exitCode = run.status ?? 1;
} finally {
  await rm(out, { recursive: true, force: true });
}
