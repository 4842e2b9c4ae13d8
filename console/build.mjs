// Bundles src/ into dist/, or into the folder that is named. The same sources give the same bytes.
import { copyFile, mkdir } from "node:fs/promises";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
await mkdir(out, { recursive: true });
await build({
  entryPoints: { console: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "inline",
  logLevel: "warning",
});
await copyFile("src/index.html", `${out}/index.html`);
