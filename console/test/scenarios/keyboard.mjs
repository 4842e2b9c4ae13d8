// All that a mouse does, keys do. The focus is always to be seen, and returns to where it was.
import { pathOf } from "../lib.mjs";

export default async function keyboard(world) {
  const { page, input } = world;
  const focused = () =>
    page.evaluate(() => {
      const e = document.activeElement;
      if (!e || e === document.body) return "";
      return e.getAttribute("aria-label") ?? e.textContent.trim();
    });
  const tabTo = async (what, wanted) => {
    const passed = [];
    for (let n = 0; n < 80; n += 1) {
      await page.keyboard.press("Tab");
      const name = await focused();
      passed.push(name.slice(0, 40));
      if (wanted.test(name)) {
        // The focus is to be seen: by an outline or a shadow.
        const visible = await page.evaluate(() => {
          const style = getComputedStyle(document.activeElement);
          return style.outlineStyle !== "none" || style.boxShadow !== "none";
        });
        if (!visible) throw new Error(`${what}: the focus is not to be seen`);
        return name;
      }
    }
    throw new Error(`${what}: Tab does not lead there, but to ${passed.join(" | ")}`);
  };
  await world.load("/");
  await world.drawn();
  await page.keyboard.press("Tab");
  world.equal("the first focus", await focused(), "Skip to the content");
  await tabTo("the page of objects", /^Objects$/);
  await page.keyboard.press("Enter");
  await world.seen("the page", page.getByRole("heading", { level: 1, name: "Objects" }));

  // The quick search.
  await page.keyboard.press("/");
  await page.keyboard.type(input.object.split("/").at(-1));
  await world.seen("a suggestion", page.getByRole("option").filter({ hasText: input.object.split("/").at(-2) }));
  const options = await page.getByRole("option").allInnerTexts();
  const index = options.findIndex((text) => text.includes(input.object.split("/").slice(1).join("/")));
  for (let n = 0; n <= index; n += 1) await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await world.holds("the path", async () => new URL(page.url()).pathname === pathOf(input.object));
  await world.drawn();

  // A hop and its panel.
  const hop = await tabTo("a hop", /leaf1 to .*confirmed|confirmed.*leaf1 to /s);
  await page.keyboard.press("Enter");
  const panel = page.getByRole("complementary");
  await world.seen("the panel", panel);
  await world.holds("the focus is in the panel", () => panel.evaluate((e) => e.contains(document.activeElement)));
  await page.keyboard.press("Escape");
  await world.gone("the panel is closed", panel);
  await world.holds("the focus returns", async () => (await focused()) === hop);

  // The help.
  await page.keyboard.press("?");
  const help = page.getByRole("dialog");
  await world.seen("the help", help);
  await page.keyboard.press("Escape");
  await world.gone("the help is closed", help);

  // A switch in the fabric.
  await world.load("/fabric");
  await world.drawn();
  const device = await tabTo("a device", /^leaf1(\D|$)/);
  await page.keyboard.press("Enter");
  await world.seen("its panel", panel);
  await page.keyboard.press("Escape");
  await world.holds("the focus returns", async () => (await focused()) === device);
}
