// Charts are Vega-Lite; each is drawn when it comes near the screen, or in idle time so that all are there on paper, and
// again when the theme changes.

const drawn = new Map();
const awaited = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
}, { rootMargin: "300px" });

/** Draw the charts that nobody has scrolled to, one at a time; not on a live page, which is built again and again. */
function drawInIdleTime() {
  if (document.body.dataset.live === "true") return;
  const wait = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
  wait(async () => {
    const next = [...drawn].find(([holder, entry]) => holder.isConnected && !entry.drawing);
    if (!next) return;
    await draw(next[0]);
    drawInIdleTime();
  });
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Colours of runs, tasks or parts, in their order. */
function palette() {
  return ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"].map(color);
}

/** A figure whose chart `spec()` is drawn when it is seen. */
function chart(title, spec, { note = "", label = "", wide = false, height = 190 } = {}) {
  const holder = element("div", { class: "plot", role: "img", "aria-label": `${title}. ${label || note}`, style: { height: `${height}px` } });
  const figure = element("figure", { class: wide ? "wide" : "" }, element("figcaption", {}, title), note ? element("p", { class: "note" }, note) : null, holder);
  drawn.set(holder, { spec: () => ({ height: height - 6, ...spec() }), view: null });
  awaited.observe(holder);
  return figure;
}

function theme() {
  const text = color("muted"), line = color("line");
  return {
    background: "transparent", font: "system-ui, sans-serif", mark: { aria: false },
    range: { category: palette(), heatmap: [color("heat0"), color("heat1"), color("heat2")], ramp: [color("heat0"), color("heat1"), color("heat2")] },
    view: { stroke: null },
    axis: { aria: false, labelColor: text, titleColor: text, gridColor: line, domain: false, ticks: false, labelPadding: 6, labelFontSize: 11, titleFontSize: 11, titleFontWeight: 400, tickCount: 5 },
    axisX: { grid: false, title: "step" }, axisY: { titlePadding: 8 },
    legend: { aria: false, labelColor: text, titleColor: text, orient: "top", title: null, labelFontSize: 11, symbolSize: 80, symbolOpacity: 1, labelLimit: 300, offset: 4, columns: 3 },
  };
}

async function draw(holder) {
  const entry = drawn.get(holder);
  awaited.unobserve(holder);
  if (!entry || entry.drawing) return;
  entry.drawing = true;
  const spec = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", autosize: { type: "fit", contains: "padding" }, ...entry.spec() };
  const result = await vegaEmbed(holder, spec, {
    actions: false, ast: true, renderer: "svg", defaultStyle: false, config: theme(),
    tooltip: (handler, event, item, value) => tip(event, value),
  });
  entry.view = result;
}

function redrawCharts() {
  for (const [holder, entry] of drawn) {
    if (!holder.isConnected) { drawn.delete(holder); continue; }
    entry.view?.finalize();
    entry.view = null;
    entry.drawing = false;
    awaited.observe(holder);
  }
  drawInIdleTime();
}

function forgetCharts() {
  for (const [holder, entry] of drawn) { entry.view?.finalize(); awaited.unobserve(holder); }
  drawn.clear();
}

/** Show a tooltip; its names and values are text. */
function tip(event, value) {
  const box = document.getElementById("tooltip");
  box.hidden = value === null || value === undefined || value === "";
  if (box.hidden) return;
  const lines = typeof value === "object" ? Object.entries(value) : [["", value]];
  box.replaceChildren(...lines.map(([name, each]) => element("div", {}, name ? element("b", {}, visible(name)) : null, ` ${visible(each)}`)));
  const { clientX: x, clientY: y } = event;
  box.style.left = `${Math.min(x + 14, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.max(8, y - box.offsetHeight - 12)}px`;
}

const TOOLTIP = { tooltip: { content: "data" } };
const X = { field: "step", type: "quantitative", axis: { format: "d", tickMinStep: 1 }, scale: { nice: false, zero: false } };

/** As many columns as fit; none where they would take the room of the chart: the head of the page has the runs' colours. */
function legend(names, wide = false) {
  const columns = Math.max(1, Math.floor((wide ? 84 : 42) / (Math.max(...names.map((each) => each.length)) + 3)));
  return wide || names.length <= 3 * columns ? { columns } : null;
}

/** Means with their intervals as bands; points are [first, last, mean, low, high, n] by name of the series. */
function bands(series, { title = "", domain = null, points = [], unit = "groups", wide = false } = {}) {
  const values = Object.entries(series).flatMap(([name, curve]) => curve.map(([first, last, mean, low, high, n]) => ({
    series: visible(name), step: (first + last) / 2, mean, low, high,
    steps: first === last ? `step ${first}` : `steps ${first}–${last}`, "mean, 95%": `${number(mean)} ${interval(low, high, number)}`, n: `${n} ${unit}`,
  })));
  const names = Object.keys(series).map(visible);
  const everyName = [...new Set([...names, ...points.map((each) => each.series)])];
  const hue = everyName.length > 1 ? { field: "series", type: "nominal", scale: { domain: everyName }, legend: legend(everyName, wide) } : { value: color("c1") };
  const y = { type: "quantitative", scale: domain ? { domain } : { zero: false }, title };
  const tips = [{ field: "series" }, { field: "steps" }, { field: "mean, 95%" }, { field: "n" }];
  return {
    data: { values },
    layer: [
      ...(values.some(({ low }) => Number.isFinite(low)) ? [{ mark: { type: "area", opacity: 0.18 }, encoding: { x: X, y: { ...y, field: "low" }, y2: { field: "high" }, color: hue } }] : []),
      { mark: { type: "line", strokeWidth: 2 }, encoding: { x: X, y: { ...y, field: "mean" }, color: hue } },
      { mark: { type: "point", filled: true, size: 60, opacity: 0.01 }, encoding: { x: X, y: { ...y, field: "mean" }, color: hue, tooltip: tips } },
      ...evaluated(points, y, hue),
    ],
  };
}

/** Evaluations as points with their intervals. */
function evaluated(points, y, hue) {
  if (!points.length) return [];
  const tips = ["series", "step", "held-out, 95%", "answers", "n"].map((field) => ({ field }));
  const known = points.filter(({ low, high }) => Number.isFinite(low) && Number.isFinite(high));
  return [
    ...(known.length ? [{ data: { values: known }, mark: { type: "rule", strokeWidth: 2 }, encoding: { x: X, y: { ...y, field: "low" }, y2: { field: "high" }, color: hue } }] : []),
    { data: { values: points }, mark: { type: "point", filled: true, size: 70, shape: "diamond", opacity: 1 }, encoding: { x: X, y: { ...y, field: "mean" }, color: hue, tooltip: tips } },
    { data: { values: points }, mark: { type: "line", strokeDash: [4, 3], opacity: 0.7 }, encoding: { x: X, y: { ...y, field: "mean" }, color: hue } },
  ];
}

/** A metric of several runs over the steps, with its healthy range shaded. */
function metricLines(values, range, { title = "" } = {}) {
  const runs = [...new Set(values.map((each) => each.series))];
  const known = values.map((each) => each.value);
  const low = Math.min(...known), high = Math.max(...known), room = (high - low || Math.abs(high) || 1) * 0.15;
  const [bottom, top] = [low - room, high + room];
  const shaded = range && [Math.max(range[0] ?? bottom, bottom), Math.min(range[1] ?? top, top)];
  const y = { field: "value", type: "quantitative", scale: { domain: [low >= 0 ? Math.max(0, bottom) : bottom, top], nice: false, zero: false }, axis: { format: ".6~g" }, title };
  const hue = runs.length > 1 ? { field: "series", type: "nominal", sort: runs, legend: legend(runs) } : { value: color("c1") };
  const steps = values.map((each) => each.step);
  return {
    layer: [
      ...(shaded && shaded[0] < shaded[1] ? [{
        data: { values: [{ x: Math.min(...steps), x2: Math.max(...steps), low: shaded[0], high: shaded[1] }] },
        mark: { type: "rect", color: color("good"), opacity: 0.13 },
        encoding: { x: { ...X, field: "x" }, x2: { field: "x2" }, y: { ...y, field: "low" }, y2: { field: "high" } },
      }] : []),
      { data: { values }, mark: { type: "line", strokeWidth: 1.7, point: values.length < 4 }, encoding: { x: X, y, color: hue } },
      { data: { values }, mark: { type: "point", size: 60, opacity: 0.01, filled: true }, encoding: { x: X, y, color: hue, tooltip: [{ field: "series" }, { field: "step" }, { field: "value", format: ".4~g" }] } },
    ],
  };
}

/** Share of completions by span of steps and by value, with the mean. */
function heat({ cells, means }, title) {
  const rows = new Set(cells.map(([, , y]) => y)), [[, , y, y2]] = cells;
  const domain = rows.size === 1 ? { domain: [y - 0.5, y2 + 0.5] } : {};
  const values = cells.map(([x, x2, y, y2, share]) => ({ x, x2, y, y2, share, steps: `steps ${x}–${x2 - 1}`, values: `${number(y)} to ${number(y2)}`, percent: `${(100 * share).toFixed(1)}% of completions` }));
  return {
    layer: [
      { data: { values }, mark: { type: "rect", stroke: null }, encoding: {
        x: { field: "x", type: "quantitative", axis: { format: "d", tickMinStep: 1 }, scale: { nice: false, zero: false } }, x2: { field: "x2" },
        y: { field: "y", type: "quantitative", title, scale: { nice: false, zero: false, ...domain } }, y2: { field: "y2" },
        color: { field: "share", type: "quantitative", legend: null, scale: { type: "sqrt", range: [color("heat0"), color("heat1"), color("heat2")] } },
        tooltip: [{ field: "steps" }, { field: "values" }, { field: "percent" }] } },
      { data: { values: means.map(([x, x2, mean]) => ({ x: (x + x2) / 2, mean })) }, mark: { type: "line", color: color("text"), strokeWidth: 1.5 },
        encoding: { x: { field: "x", type: "quantitative", title: "step" }, y: { field: "mean", type: "quantitative" } } },
    ],
  };
}

/** Stacked areas, as seconds of phases or MiB, over the steps. */
function areas(values, names, title) {
  return {
    data: { values },
    mark: { type: "area", opacity: 0.85 },
    encoding: { x: X, y: { field: "value", type: "quantitative", stack: "zero", title }, color: { field: "series", type: "nominal", sort: names },
      order: { field: "order" }, tooltip: [{ field: "series" }, { field: "step" }, { field: "value", format: ".3~g" }] },
  };
}
