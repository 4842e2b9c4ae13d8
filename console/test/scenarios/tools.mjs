// Plans, the time line, addresses, CSV, and views that are links.
import { readFile } from "node:fs/promises";
import { pathOf } from "../lib.mjs";

export default async function tools(world) {
  const { page, input } = world;
  // A plan of pasted manifests. Nothing is applied.
  await world.load("/plan");
  await page.getByRole("textbox", { name: /Manifests/ }).fill(input.manifests);
  await page.getByRole("button", { name: "Show the plan" }).click();
  const plan = page.getByRole("region", { name: "Plan" });
  await world.seen("the plan", plan);
  await world.seen("that nothing was applied", plan.getByText("Nothing was applied."));
  await world.seen("the object", plan.getByText(input.planned));
  await world.seen("a switch", plan.getByRole("link", { name: "leaf1" }));
  await world.accessible("a plan");
  await world.shot("plan");
  world.allowed.push(/status of 400/);
  await page.getByRole("textbox", { name: /Manifests/ }).fill("kind: [");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await world.seen("why there is no plan", page.getByRole("alert"));
  await world.step("nothing was applied");

  // The time line of an object, with a filter that stays after a reload.
  await world.load(`/timeline?object=${encodeURIComponent(input.object)}`);
  await world.drawn();
  await world.seen("an entry", page.getByRole("cell", { name: "phase" }));
  await world.accessible("a time line");
  await world.shot("timeline");

  // Who has an address.
  await world.load("/addresses");
  await world.drawn();
  await page.getByRole("textbox", { name: /Who has/ }).fill(input.address);
  await page.getByRole("button", { name: "Find" }).click();
  await world.seen("its pod", page.getByRole("region", { name: "Who has an address" }).getByText(input.pod));
  await page.reload();
  await world.seen("its pod after a reload", page.getByRole("region", { name: "Who has an address" }).getByText(input.pod));
  await world.accessible("addresses");
  await world.shot("addresses");

  // CSV. A cell that a spreadsheet would take for a formula is marked as text.
  await world.load("/fabric?view=table");
  await world.drawn();
  const saving = page.waitForEvent("download");
  await page.getByRole("region", { name: "Links" }).getByRole("button", { name: /CSV/ }).click();
  const download = await saving;
  world.equal("the name of the file", download.suggestedFilename(), "eno-links.csv");
  const csv = await readFile(await download.path(), "utf8");
  const lines = csv.split("\r\n");
  if (!lines[0].startsWith("Device,Port,")) throw new Error(`the head of the CSV: ${lines[0]}`);
  if (!lines.some((line) => line.startsWith("leaf1,Ethernet1,"))) throw new Error(`no line of leaf1: ${csv.slice(0, 500)}`);
  if (!csv.includes(input.formulaCell)) throw new Error(`no ${input.formulaCell} in ${csv}`);
  for (const cell of csv.split(/[,\r\n]+/)) if (/^"?[=+@-]/.test(cell)) throw new Error(`a formula: ${cell}`);

  // A view is a link: after a reload it is the same, and Back leads to the one before.
  await world.load(`${pathOf(input.object)}`);
  await world.drawn();
  await world.hops(/leaf1/).first().click();
  const panel = page.getByRole("complementary");
  await world.seen("the panel", panel);
  await world.seen("what is desired", panel.getByText("Desired"));
  const url = page.url();
  await page.reload();
  await world.seen("the panel after a reload", panel);
  world.equal("the address after a reload", page.url(), url);
  await world.accessible("a path with a panel");
  await world.shot("panel");
  await world.load("/objects?q=nothing-has-this-name");
  await world.drawn();
  await world.seen("that no row matches", page.getByText("No row matches."));
  await page.goBack();
  await world.seen("the panel again", panel);
}
