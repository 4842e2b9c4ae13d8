// Texts of others are shown as texts: no script runs, no element is made, and a mark that turns the direction of
// writing has no effect beyond its own text.
import { pathOf } from "../lib.mjs";

export default async function hostile(world) {
  const { page, input } = world;
  const seen = new Set();
  for (const path of [...input.pages, ...input.objects.map(pathOf)]) {
    await world.load(path);
    await world.drawn(path);
    const found = await page.evaluate((texts) => {
      const all = document.documentElement;
      const walker = document.createTreeWalker(all, NodeFilter.SHOW_TEXT);
      const open = [];
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        if (!/[\u202a-\u202e\u2066-\u2069]/.test(node.data) || !node.parentElement) continue;
        const isolated = (e) => e && (getComputedStyle(e).unicodeBidi.includes("isolate") || isolated(e.parentElement));
        // The title of the document is no element of the page.
        if (node.parentElement.tagName !== "TITLE" && !isolated(node.parentElement)) open.push(node.parentElement.outerHTML.slice(0, 200));
      }
      return {
        open,
        pwned: globalThis.pwned,
        made: [...document.querySelectorAll("script:not([src]), img, iframe, object, embed, [onerror], [onload], b, base")].map((e) => e.outerHTML),
        scripts: [...document.scripts].map((s) => s.getAttribute("src")),
        shown: texts.filter((text) => document.body.innerText.includes(text)),
      };
    }, input.texts);
    world.equal(`${path}: no script ran`, found.pwned, undefined);
    world.equal(`${path}: elements of others`, found.made, []);
    world.equal(`${path}: scripts`, found.scripts, ["/console.js"]);
    world.equal(`${path}: texts that turn the direction`, found.open, []);
    for (const text of found.shown) seen.add(text);
    await world.fits(path);
    await world.shot(path.slice(0, 60));
  }
  world.equal("the texts that some page shows", input.texts.filter((text) => !seen.has(text)), []);
}
