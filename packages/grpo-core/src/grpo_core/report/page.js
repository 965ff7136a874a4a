// Putting the page together, and keeping a live one new.

let browser = null;

function build(data) {
  forgetCharts();
  document.getElementById("top").replaceChildren(...header(data));
  browser = new Browser(data);
  const sections = [overview, comparison, learning, evaluation, distributions, diagnostics, resourcesOf].map((make) => make(data));
  const shown = [...sections, browser.element(), warnings(data), configuration(data)].filter(Boolean);
  document.getElementById("content").replaceChildren(...shown);
  document.getElementById("sections").replaceChildren(...shown.map((each) => element("a", { href: `#${each.id}` }, each.querySelector("h2").textContent.split(" on ")[0])));
  document.getElementById("foot").textContent = `grpo-core ${data.grpo_core} · written ${new Date(data.generated).toLocaleString("en-GB")} · keys: / search, j k next and previous completion, t light or dark`;
  drawInIdleTime();
  if (!browser.fields) return;
  browser.filter();
  const { runs } = browser, made = browser;
  if (runs.length) setTimeout(() => made.lower(0), 200); // the first search need not make the texts that it looks through
}

function switchTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches, root = document.documentElement;
  root.dataset.theme = (root.dataset.theme ?? (isDark ? "dark" : "light")) === "dark" ? "light" : "dark";
  redrawCharts();
}

/** Show new data without losing the filters, the chosen completion or the place on the page. */
function renew(data) {
  const kept = browser.fields && Object.fromEntries(Object.entries(browser.fields).map(([name, input]) => [name, input.value]));
  const { chosen } = browser, focused = document.activeElement, scrolled = browser.list?.scrollTop;
  const name = kept && Object.entries(browser.fields).find(([, input]) => input === focused)?.[0], wasInList = focused && focused === browser.list;
  const y = scrollY;
  build(data);
  if (kept && browser.fields) {
    for (const [field, value] of Object.entries(kept)) browser.fields[field].value = value;
    browser.chosen = chosen;
    browser.filter();
    browser.list.scrollTop = scrolled;
    if (name) browser.fields[name].focus();
    else if (wasInList) browser.list.focus({ preventScroll: true });
  }
  scrollTo(0, y);
}

const PAUSE_MS = 3000;

async function follow(tag) {
  const status = () => document.getElementById("live");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    try {
      const answer = await fetch("data.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        renew(await answer.json());
      } else if (answer.status !== 304) throw new Error(await answer.text());
      status().textContent = `live · ${new Date().toLocaleTimeString("en-GB")}`;
    } catch (error) {
      status().textContent = `no new data: ${error instanceof TypeError ? "the server has ended" : visible(error.message)}`;
    }
  }
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof Element && event.target.matches("input, select, textarea");
  if (event.key === "Escape") document.activeElement?.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && browser.fields) {
    event.preventDefault();
    browser.fields.text.focus();
    document.getElementById("rollouts").scrollIntoView();
  }
  if (event.key === "t") switchTheme();
  if ((event.key === "j" || event.key === "k") && browser.fields && event.target !== browser.list) browser.key(event);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);

build(JSON.parse(document.getElementById("data").textContent));
document.getElementById("data").remove();
performance.mark("grpo-report-ready");
if (document.body.dataset.live === "true") follow("");
