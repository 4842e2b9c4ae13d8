// What scenarios share: the browser with its guards, steps that the caller carries out, and waits for conditions.
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
/** The pages are to meet these rules. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** The longest wait for one condition, in ms. */
const WAIT = 20_000;
/** Between two looks at a condition that has no event, in ms. */
const LOOK = 25;

/** A condition that does not hold. */
export class Failure extends Error {}

/** The scenario's browser, page and caller. */
export class World {
  problems = [];
  shotCount = 0;

  constructor(scenario) {
    this.scenario = scenario;
    this.input = JSON.parse(process.env.ENO_INPUT ?? "{}");
    this.shots = process.env.ENO_SHOTS ?? "shots";
    const lines = createInterface({ input: process.stdin });
    this.answers = lines[Symbol.asyncIterator]();
    /** The caller ended. */
    this.orphaned = new Promise((done) => lines.once("close", done));
    /** Messages of the console that the scenario causes on purpose. */
    this.allowed = [];
  }

  async start(url) {
    await mkdir(this.shots, { recursive: true });
    const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
    const path = process.env.ENO_CHROMIUM ?? (await inPath("chromium"));
    this.browser = await chromium.launch({ executablePath: path, args });
    this.context = await this.browser.newContext({
      viewport: { width: 1280, height: 900 },
      acceptDownloads: true,
      reducedMotion: "reduce",
    });
    this.context.setDefaultTimeout(WAIT);
    // It is in the page before a policy forbids it, and reports what the policy forbids.
    await this.context.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => {
        console.error(`policy: ${event.violatedDirective} forbids ${event.blockedURI} at ${event.sourceFile}`);
      });
    });
    await this.context.addInitScript({ path: require.resolve("axe-core/axe.min.js") });
    this.page = await this.context.newPage();
    this.origin = new URL(url).origin;
    this.watch(this.page);
    await this.page.goto(url);
  }

  /** Notes what no page may do. */
  watch(page) {
    const note = (text) => {
      if (!this.allowed.some((known) => known.test(text))) this.problems.push(`${new URL(page.url()).pathname}: ${text}`);
    };
    page.on("console", (message) => message.type() === "error" && note(`console error: ${message.text()}`));
    page.on("pageerror", (error) => note(`error of a script: ${error.stack ?? error}`));
    page.on("dialog", (dialog) => {
      note(`a dialog says ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("popup", () => note("it opens another window"));
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(this.origin) && !/^(data|blob):/.test(url)) note(`it asks ${url}`);
      if (url.includes("token=") && url !== process.env.ENO_UI_URL) note(`the token is in a request of ${url}`);
    });
  }

  /** Fails if a page did what none may do. */
  noProblems() {
    if (this.problems.length > 0) throw new Failure(this.problems.join("\n"));
  }

  async close() {
    await this.browser?.close();
  }

  /** Lets the caller change something outside; returns its answer. */
  async step(name) {
    process.stdout.write(`STEP ${name}\n`);
    const { value, done } = await this.answers.next();
    if (done || !value.startsWith("done")) throw new Failure(`step ${name}: the caller says ${value}`);
    const text = value.slice("done".length).trim();
    return text ? JSON.parse(text) : undefined;
  }

  /** Tells the caller a duration in ms. */
  figure(name, ms) {
    process.stdout.write(`FIGURE ${name.replace(/\W+/g, "-")} ${Math.round(ms * 10) / 10}\n`);
  }

  /** Opens a page of the console without loading it again. */
  async follow(path) {
    await this.page.evaluate((to) => {
      const link = document.createElement("a");
      link.href = to;
      document.body.append(link);
      link.click();
      link.remove();
    }, path);
  }

  /** Loads a page of the console. */
  async load(path) {
    await this.page.goto(this.origin + path);
  }

  /** Waits until a page is drawn: it has its heading, and it reads nothing any more. */
  async drawn(what = new URL(this.page.url()).pathname) {
    await this.seen(`${what}: a heading`, this.page.getByRole("main").getByRole("heading", { level: 1 }));
    const reading = this.page.getByText(/^Reading .* …$/);
    await this.holds(`${what}: all is read`, async () => (await reading.count()) === 0);
    const alerts = this.page.getByRole("alert");
    if ((await alerts.count()) > 0 && !this.input.expectsAlerts)
      throw new Failure(`${what}: it shows a failure: ${(await alerts.allInnerTexts()).join("; ")}`);
  }

  /** Waits until an element is visible. */
  async seen(what, locator, timeout = WAIT) {
    try {
      await locator.first().waitFor({ state: "visible", timeout });
    } catch {
      throw new Failure(`${this.page.url()}: ${what}: not seen; the page says:\n${await this.text()}`);
    }
  }

  /** Waits until no element is visible. */
  async gone(what, locator, timeout = WAIT) {
    await this.holds(what, async () => (await locator.filter({ visible: true }).count()) === 0, timeout);
  }

  /** Waits until a condition holds. */
  async holds(what, condition, timeout = WAIT) {
    const end = performance.now() + timeout;
    for (;;) {
      if (await condition()) return;
      if (performance.now() > end) throw new Failure(`${this.page.url()}: ${what}: not so; the page says:\n${await this.text()}`);
      await new Promise((done) => setTimeout(done, LOOK));
    }
  }

  /** The text of the page, shortened. */
  async text() {
    const text = await this.page.locator("body").innerText().catch((error) => String(error));
    return text.replace(/\s*\n\s*/g, "\n").slice(0, 3000);
  }

  /** Fails unless a value is as expected. */
  equal(what, found, expected) {
    if (JSON.stringify(found) !== JSON.stringify(expected))
      throw new Failure(`${this.page.url()}: ${what}: ${JSON.stringify(found)}, and not ${JSON.stringify(expected)}`);
  }

  /** Fails if axe finds that a page does not serve all people. */
  async accessible(what = this.page.url()) {
    const found = await this.page.evaluate(async (rules) => {
      const { violations } = await globalThis.axe.run(document, { runOnly: rules, resultTypes: ["violations"] });
      return violations.map((v) => `${v.id} (${v.impact}): ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} ${n.failureSummary}`).join(" | ")}`);
    }, RULES);
    if (found.length > 0) throw new Failure(`${what}: axe finds:\n${found.join("\n")}`);
  }

  /** Keeps a picture of the page. */
  async shot(name) {
    await this.page.screenshot({ path: `${this.shots}/${this.scenario}-${name.replace(/[^\w-]+/g, "-")}.png` });
  }

  /** Fails if the page is wider than the window. */
  async fits(what) {
    const [has, may] = await this.page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    if (has > may) throw new Failure(`${what}: the page is ${has} px wide, and the window ${may} px`);
  }

  /** The links of the header. */
  navigation(name) {
    return this.page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name });
  }

  /** A banner or a notice with a text. */
  notice(text) {
    return this.page.getByText(text);
  }

  /** The hops of a path whose names contain a text. */
  hops(text) {
    return this.page.getByRole("group", { name: "Path from the pods to the gateway" }).getByRole("button", { name: text });
  }
}

async function inPath(program) {
  const { access, constants } = await import("node:fs/promises");
  for (const folder of (process.env.PATH ?? "").split(":")) {
    const path = `${folder}/${program}`;
    if (await access(path, constants.X_OK).then(() => true, () => false)) return path;
  }
  throw new Failure(`there is no ${program} in PATH; set ENO_CHROMIUM`);
}

/** The path of the page of an object. */
export const pathOf = (object) => `/path/${object.split("/").map(encodeURIComponent).join("/")}`;

/** The pages of the header, with their headings. */
export const PAGES = [
  ["/", "Overview"],
  ["/objects", "Objects"],
  ["/fabric", "Fabric"],
  ["/timeline", "Timeline"],
  ["/plan", "Plan"],
  ["/addresses", "Addresses"],
];
