// Bundles src/ into dist/, or into the folder that is named. The same sources give the same bytes.
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
await mkdir(out, { recursive: true });
const { metafile } = await build({
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
  metafile: true,
});
await copyFile("src/index.html", `${out}/index.html`);

// The libraries in the bundle, with their licences, for the bill of materials of the image.
const folders = Object.keys(metafile.inputs).map((path) => path.match(/^node_modules\/(@[^/]+\/)?[^/]+/)?.[0]);
const libraries = [];
for (const folder of [...new Set(folders.filter(Boolean))].sort()) {
  const { name, version, license } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  libraries.push({ name, version, licence: license, text: await readFile(`${folder}/LICENSE`, "utf8") });
}
await writeFile(`${out}/libraries.json`, `${JSON.stringify(libraries, null, 2)}\n`);
