// The sections of a report, each a function of the data that returns its elements, or null.

const STATES = { running: "live", finished: "good", interrupted: "warn", killed: "bad", failed: "bad" };

function section(id, title, ...children) {
  const content = children.flat().filter(Boolean);
  return content.length ? element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title), content) : null;
}

function grid(...figures) {
  const shown = figures.flat().filter(Boolean);
  return shown.length ? element("div", { class: "grid" }, shown) : null;
}

/** What a task is called: as its option `name` says, else by its name without options; `label_of` in Python. */
const short = (task) => /[?&]name=([^&]+)/.exec(task)?.[1] ?? task.split("?")[0];

/** The name of a task among others: with options only where two differ in nothing else. */
function labelOf(spec, specs) {
  return specs.some((other) => other !== spec && short(other) === short(spec)) ? spec : short(spec);
}

function tasksOf(runs) {
  const specs = [...new Set(runs.flatMap((run) => Object.keys(run.tasks)))];
  return specs.map((spec) => ({ spec, label: labelOf(spec, specs) }));
}

const evaluatedTasks = (runs) => [...new Set(runs.flatMap((run) => run.evaluations.map((each) => each.task)))];

/** Evaluations of a trained task; beside it, of one run, those with other options, as of a game against another player. */
function evaluationsOf(run, spec, several) {
  const trained = Object.keys(run.tasks);
  const isOwn = ({ task }) => task === spec || (task === short(spec) && !trained.includes(task));
  const isRelated = ({ task }) => short(task) === short(spec) && !trained.includes(task);
  const options = ({ task }) => task.split("?").slice(1).join("?").split("&").filter((option) => !spec.includes(option)).join(" ");
  return run.evaluations.filter((each) => isOwn(each) || (!several && isRelated(each))).map((each) => ({
    ...each, series: several ? visible(run.name) : ["held out", isOwn(each) ? "" : ` ${visible(options(each))}`, howMade(each.result) && `, ${howMade(each.result).split(" ")[0]}`].join(""),
  }));
}

/** How the completions of an evaluation were made. */
const howMade = ({ temperature }) => temperature === undefined ? "" : temperature > 0 ? `sampled at temperature ${number(temperature)}` : "greedy";

function header(data) {
  const [first] = data.runs;
  const several = data.runs.length > 1;
  const pills = data.runs.map((run, index) => element("span", { class: "run" },
    several ? element("i", { class: "swatch", style: { background: `var(--c${index % 8 + 1})` } }) : null,
    element("span", { class: "name", title: visible(run.path) }, visible(run.name)),
    element("span", { class: `pill ${STATES[run.state] ?? ""}` }, run.state),
  ));
  const facts = [
    visible(first.task ?? ""), `model ${visible(first.model ?? "–")}`, first.seed === null ? null : `seed ${first.seed}`,
    `${first.steps}${first.planned ? ` of ${first.planned}` : ""} steps`,
  ].filter(Boolean);
  return [
    element("div", { class: "brand" }, element("span", { class: "logo", "aria-hidden": "true" }, "▚"), "grpo report"),
    element("div", { class: "title" }, element("h1", {}, pills), element("p", { class: "facts" }, several ? `${data.runs.length} runs, compared with the first` : facts.join(" · "))),
    element("div", { class: "tools" },
      element("span", { id: "live", class: "live", role: "status" }),
      element("button", { id: "theme", type: "button", title: "Light or dark (t)", "aria-label": "Switch between light and dark", onclick: switchTheme }, "◐")),
  ];
}

function tile(name, value, more, tone = "") {
  return element("div", { class: `tile ${tone}` }, element("dt", {}, name), element("dd", {}, element("strong", {}, value), more ? element("small", {}, more) : null));
}

function overview(data) {
  const tiles = [];
  for (const run of data.runs) {
    const prefix = data.runs.length > 1 ? `${visible(run.name)} · ` : "";
    const tasks = evaluatedTasks([run]);
    for (const task of tasks) {
      const found = run.evaluations.filter((each) => each.task === task);
      const initial = found.find((each) => each.phase === "initial")?.result;
      const last = found.filter((each) => each.phase !== "initial").at(-1)?.result;
      const shown = last ?? initial, how = shown && howMade(shown);
      const change = last?.delta === undefined ? null : `${signed(last.delta)} ${interval(last.delta_ci_low, last.delta_ci_high, signed)} over initial`;
      const tone = change && last.delta_ci_low > 0 ? "up" : change && last.delta_ci_high < 0 ? "down" : "";
      tiles.push(tile(`${prefix}held out${tasks.length > 1 || data.runs.length > 1 ? ` · ${visible(labelOf(task, tasks))}` : ""}, ${how ? `${how}, ` : ""}solved`,
        initial && last ? `${fixed(initial.solved_rate)} → ${fixed(last.solved_rate)}` : fixed(shown?.solved_rate),
        change ?? `${interval(shown?.ci_low, shown?.ci_high)} of ${plural(shown?.n ?? 0, "row")}${last ? "" : ", before training"}`, tone));
    }
  }
  if (data.runs.length === 1) {
    const [run] = data.runs, values = run.metrics.values;
    const reward = values.reward ?? [];
    if (reward.length) tiles.push(tile("training reward", `${fixed(reward[0])} → ${fixed(reward.at(-1))}`, `first and last logged step`));
    const abstained = (values.abstained ?? []).reduce((sum, each) => sum + (each ?? 0), 0);
    const zero = values.frac_reward_zero_std?.at(-1);
    if (zero !== undefined) tiles.push(tile("groups without a signal", `${(100 * zero).toFixed(0)}%`, "of the last step; their rewards are all equal"));
    const spent = Object.values(run.time.totals).reduce((sum, each) => sum + each, 0);
    if (spent) tiles.push(tile("time", duration(spent), `${plural(run.steps, "step")}, evaluations included`));
    if (run.rollouts) tiles.push(tile("completions", run.rollouts.total.toLocaleString("en"), abstained ? `${plural(abstained, "completion")} not scored` : "all of them scored", abstained ? "down" : ""));
  }
  return section("overview", "Overview", element("dl", { class: "tiles" }, tiles), problems(data));
}

function problems(data) {
  const several = data.runs.length > 1;
  const lines = data.runs.flatMap((run) => [
    run.problem ? element("li", { class: "bad" }, `${several ? `${visible(run.name)}: ` : ""}the run failed: ${visible(run.problem)}`) : null,
    ...run.missing.map((text) => element("li", {}, `${several ? `${visible(run.name)}: ` : ""}${visible(text)}`)),
    ...(run.rollouts?.problems ?? []).map((text) => element("li", {}, `${several ? `${visible(run.name)}: ` : ""}${visible(text)}`)),
  ]).filter(Boolean);
  const warned = data.runs.reduce((sum, run) => sum + run.n_warnings, 0);
  if (warned) lines.unshift(element("li", { class: "warn" }, element("a", { href: "#warnings" }, plural(warned, "warning")), data.runs.length > 1 ? " during the runs" : " during the run"));
  return lines.length ? element("aside", { class: "callout", "aria-label": "What to know about this report" }, element("ul", {}, lines)) : null;
}

function learning(data) {
  const blocks = [];
  for (const { spec, label } of tasksOf(data.runs)) {
    const runs = data.runs.filter((run) => run.tasks[spec]);
    const curves = (of) => Object.fromEntries(runs.map((run) => [run.name, of(run.tasks[spec])]).filter(([, curve]) => curve?.length));
    const evaluations = runs.flatMap((run) => evaluationsOf(run, spec, runs.length > 1));
    const tested = evaluations.map(({ series, step, result }) => ({
      series, step, mean: result.solved_rate, answers: howMade(result), low: result.ci_low, high: result.ci_high,
      "held-out, 95%": `${number(result.solved_rate)} ${interval(result.ci_low, result.ci_high, number)}`, n: `${result.n} rows`,
    }));
    const rewarded = evaluations.filter(({ result }) => result.mean_reward !== undefined).map(({ series, step, result }) => ({
      series, step, mean: result.mean_reward, answers: howMade(result), low: result.mean_reward_ci_low, high: result.mean_reward_ci_high,
      "held-out, 95%": `${number(result.mean_reward)} ${interval(result.mean_reward_ci_low, result.mean_reward_ci_high, number)}`, n: `${result.n} rows`,
    }));
    const temperatures = [...new Set(runs.map((run) => run.settings.find(([key]) => key === "trainer.temperature")?.[1] ?? "1"))];
    const trained = `training, sampled at temperature ${temperatures.map(visible).join(" and ")}`;
    const how = [...new Set(evaluations.map(({ result }) => howMade(result)))].filter(Boolean).join(" and ");
    const named = (of) => runs.length > 1 ? curves(of) : { "training, sampled": Object.values(curves(of))[0] ?? [] };
    const parts = [...new Set(runs.flatMap((run) => Object.keys(run.tasks[spec].parts)))];
    const note = `band and bars: 95% intervals; ${trained}, over prompts; held-out${how && `, ${how}`}, over rows`;
    blocks.push(
      tasksOf(data.runs).length > 1 ? element("h3", {}, visible(label)) : null,
      grid(
        chart("Solved rate", () => bands(named((task) => task.solved), { domain: [0, 1], points: tested, wide: true }), { note, label: summaryOf(named((task) => task.solved)), wide: true, height: 260 }),
        chart("Reward", () => bands(named((task) => task.reward), { points: rewarded, wide: true }), { note, label: summaryOf(named((task) => task.reward)), wide: true, height: 260 }),
        parts.length > 1 ? parts.map((part) => chart(`Part: ${visible(part)}`, () => bands(named((task) => task.parts[part] ?? [])), { note: "mean raw value, before its weight", label: summaryOf(named((task) => task.parts[part] ?? [])) })) : null,
      ));
  }
  if (!blocks.length) blocks.push(logged(data));
  return section("learning", "Learning", blocks);
}

/** Curves of the training log, where there are no completions to compute intervals from. */
function logged(data) {
  const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.metrics.values)))];
  const chosen = names.filter((name) => name === "reward" || name === "solved_rate" || /^task\/.*\/(reward|solved_rate|part\/.*)$/.test(name));
  return grid(chosen.map((name) => lineChart(data, { name, formula: "from the training log, without an interval" })));
}

function summaryOf(series) {
  return Object.entries(series).map(([name, curve]) => curve.length ? `${visible(name)}: from ${number(curve[0][2])} to ${number(curve.at(-1)[2])}` : "").join("; ");
}

function distributions(data) {
  const blocks = tasksOf(data.runs).flatMap(({ spec, label }) => data.runs.filter((run) => run.tasks[spec]).map((run) => {
    const { reward_cells: rewards, length_cells: lengths } = run.tasks[spec];
    const names = [tasksOf(data.runs).length > 1 ? label : "", data.runs.length > 1 ? run.name : ""].filter(Boolean).map(visible);
    return [
      names.length ? element("h3", {}, names.join(" · ")) : null,
      grid(
        rewards && chart("Reward of completions", () => heat(rewards, "reward"), { note: "stronger colour: more of the completions; line: mean", wide: true, height: 240 }),
        lengths && chart("Length of completions", () => heat(lengths, "tokens"), { note: "stronger colour: more of the completions; line: mean", wide: true, height: 240 })),
    ];
  }));
  return section("distributions", "Distributions", blocks.flat());
}

const TITLES = {
  kl: "KL to the reference", entropy: "Entropy", ratio_mean: "Ratio π/π_old, mean", ess: "Effective sample size", "gns/b_simple": "Gradient noise scale",
  frac_reward_zero_std: "Groups with equal rewards", "clip_ratio/region": "Clipped tokens", grad_norm: "Gradient norm", sampler_mismatch: "Sampler mismatch",
  "completions/truncated_frac": "Truncated completions", abstained: "Abstentions", "loss/policy": "Policy loss", learning_rate: "Learning rate",
  tokens_per_s: "Tokens per second",
};

function lineChart(data, { name, formula, healthy, range }) {
  const values = data.runs.flatMap((run) => (run.metrics.values[name] ?? []).map((value, index) => ({ series: visible(run.name), step: run.metrics.steps[index], value })).filter((each) => each.value !== null));
  if (!values.length) return null;
  const note = healthy ? `${range ? "healthy: " : ""}${healthy.replaceAll("`", "")}` : formula;
  return chart(TITLES[name] ?? visible(name), () => metricLines(values, range), { note, label: `${formula}; from ${number(values[0].value)} to ${number(values.at(-1).value)}` });
}

function diagnostics(data) {
  const ranges = data.runs[0].diagnostics;
  const figures = ranges.map((each) => lineChart(data, each)).filter(Boolean);
  const absent = ranges.filter((each) => !data.runs.some((run) => run.metrics.values[each.name]));
  return section("diagnostics", "Diagnostics", figures.length ? element("p", { class: "lead" }, element("i", { class: "swatch healthy" }), " the healthy range") : null, grid(figures),
    absent.length && figures.length ? element("p", { class: "note" }, `Not logged in this run: ${absent.map((each) => `${TITLES[each.name]} (${each.formula.replaceAll("`", "")})`).join("; ")}.`) : null,
    abstentions(data));
}

function abstentions(data) {
  const rows = data.runs.flatMap((run) => Object.entries(run.tasks).flatMap(([task, { faults }]) => faults.map(([fault, count]) => [short(task), fault, count, data.runs.length > 1 ? run.name : null].filter((cell) => cell !== null))));
  return [element("h3", { id: "abstentions" }, "Abstentions"), rows.length
    ? table("Completions that could not be scored", ["task", "why", "completions", ...(data.runs.length > 1 ? ["run"] : [])], rows)
    : element("p", { class: "note" }, data.runs.some((run) => Object.keys(run.tasks).length) ? "Every completion was scored." : "Not known: the run has no completions.")];
}

function evaluation(data) {
  const several = data.runs.length > 1, tasks = evaluatedTasks(data.runs);
  const rows = data.runs.flatMap((run) => run.evaluations.map(({ task, phase, step, result }) => [
    ...(several ? [run.name] : []), labelOf(task, tasks), phase === "initial" ? "initial" : phase === "final" ? "final" : `step ${step}`,
    `${fixed(result.solved_rate, 3)} ${interval(result.ci_low, result.ci_high)}`,
    result.delta === undefined ? "–" : element("span", { class: result.delta_ci_low > 0 ? "up" : result.delta_ci_high < 0 ? "down" : "" }, `${signed(result.delta, 3)} ${interval(result.delta_ci_low, result.delta_ci_high, signed)}`),
    `${fixed(result.mean_reward, 3)} ${interval(result.mean_reward_ci_low, result.mean_reward_ci_high)}`,
    howMade(result) || "–", result.n ?? "–", result.abstained ?? "–", number(result.mean_length),
  ]));
  if (!rows.length) return null;
  return section("evaluation", "Evaluation on held-out problems",
    element("p", { class: "lead" }, "Rates over rows with 95% intervals; “initial” is before training, “over initial” the paired difference on the same rows."),
    table("Evaluations", [...(several ? ["run"] : []), "task", "when", "solved", "over initial", "mean reward", "answers", "rows", "not scored", "tokens"], rows));
}

function comparison(data) {
  if (!data.comparison) return null;
  const { base, settings, differences } = data.comparison;
  const rows = differences.map(({ run, task, what, value, low, high, n, unit, problem }) => [
    run, short(task), what, problem ?? element("span", { class: low > 0 ? "up" : high < 0 ? "down" : "" }, `${signed(value, 3)} ${interval(low, high, signed)}`), problem ? "–" : plural(n, unit.slice(0, -1)),
  ]);
  return section("comparison", "Comparison",
    element("p", { class: "lead" }, `Differences over ${visible(base)}, paired on the same rows or prompts, with 95% intervals. An interval that holds 0 shows no difference.`),
    table("Paired differences", ["run", "task", "of", "difference", "pairs"], rows),
    element("h3", {}, "Settings that differ"),
    settings.length ? table("Settings that differ", ["setting", ...data.runs.map((run) => visible(run.name))], settings) : element("p", { class: "note" }, "None."));
}

const PHASES = { generate_s: "sampling and scoring", update_s: "update", other_s: "other", evaluate_s: "evaluation" };

function resourcesOf(data) {
  const blocks = data.runs.map((run) => {
    const { steps, values } = run.metrics, names = ["sampling and scoring", "update", "other"];
    const seconds = steps.flatMap((step, index) => {
      const [generate, update] = [values.generate_s?.[index] ?? 0, values.update_s?.[index] ?? 0];
      const other = Math.max(0, (values.step_s?.[index] ?? 0) - generate - update);
      return [generate, update, other].map((value, order) => ({ step, series: names[order], value, order }));
    });
    const memory = [["memory/generate_mib", "sampling"], ["memory/update_mib", "update"], ["peak_memory_mib", "peak"]]
      .flatMap(([name, series]) => (values[name] ?? []).map((value, index) => ({ step: steps[index], series, value }))).filter((each) => each.value !== null);
    const whole = Object.values(run.time.totals).reduce((sum, each) => sum + each, 0);
    const rows = Object.entries(run.time.totals).filter(([, each]) => each > 0).map(([name, each]) => [PHASES[name], duration(each), `${(100 * each / whole).toFixed(0)}%`]);
    const speed = lineChart({ runs: [run] }, { name: "tokens_per_s", formula: "completion tokens of a step over its seconds" });
    if (!values.generate_s && !memory.length) return null;
    return [
      data.runs.length > 1 ? element("h3", {}, visible(run.name)) : null,
      grid(
        values.generate_s && chart("Seconds of a step", () => areas(seconds, names, "s"), { note: "stacked by phase" }),
        memory.length ? chart("Memory", () => metricLines(memory, null, { title: "MiB" }), { note: "most memory in each phase" }) : null,
        speed,
        rows.length ? element("figure", {}, element("figcaption", {}, "Where the time went"), table("Time by phase", ["phase", "time", "share"], rows)) : null),
    ];
  });
  return section("resources", "Time and memory", blocks.flat());
}

function warnings(data) {
  const rows = data.runs.flatMap((run) => run.warnings.map(({ step, message }) => [...(data.runs.length > 1 ? [run.name] : []), `step ${step}`, message]));
  return section("warnings", "Warnings", rows.length
    ? table("Warnings", [...(data.runs.length > 1 ? ["run"] : []), "when", "what"], rows, { class: "text" })
    : element("p", { class: "note" }, "None."));
}

function configuration(data) {
  const blocks = data.runs.flatMap((run) => {
    const hasSources = run.settings.some(([, , source]) => source);
    const rows = run.settings.map(([key, value, source]) => [key, value, source || "–"]);
    const body = table("Settings", ["setting", "value", "source"], rows, { class: "settings text" });
    const filter = element("input", { type: "search", placeholder: "Filter settings", "aria-label": `Filter the settings of ${run.name}`, oninput: () => sift() });
    const all = element("input", { type: "checkbox", onchange: () => sift() });
    all.checked = !hasSources;
    function sift() {
      const wanted = filter.value.toLowerCase();
      [...body.querySelectorAll("tbody tr")].forEach((line, index) => {
        const [key, value, source] = rows[index];
        line.hidden = !(`${key} ${value} ${source}`.toLowerCase().includes(wanted) && (wanted || all.checked || source !== "default"));
      });
    }
    sift();
    return [
      data.runs.length > 1 ? element("h3", {}, visible(run.name)) : null,
      run.choices.length ? table("Chosen values", ["chosen", "value", "why"], run.choices.map(({ what, value, why }) => [what, value, why]), { class: "text" }) : null,
      element("div", { class: "filters" }, filter, hasSources ? element("label", {}, all, " defaults too") : element("span", { class: "note" }, "This run did not store where its values come from.")),
      body,
    ];
  });
  return section("configuration", "Configuration", blocks);
}
