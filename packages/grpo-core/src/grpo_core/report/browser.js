// The browser of completions: a list of which only the visible lines exist, and the group of the chosen one.

const SOLVED = 1, VALID = 2, ABSTAINED = 4, TRUNCATED = 8, EXCLUDED = 16;
const LINE = 52; // pixels of a line of the list
const PAGE_MARGIN = 6; // lines drawn above and below the visible ones

class Browser {
  constructor(data) {
    this.runs = data.runs.filter((run) => run.rollouts?.text.length);
    this.index = this.runs.flatMap((run, number) => Array.from(run.rollouts.text, (_, at) => [number, at]));
    this.shown = Int32Array.from(this.index.keys());
    this.chosen = -1;
    this.inLower = null;
  }

  element() {
    if (!this.runs.length) return null;
    const choices = (values, every) => [element("option", { value: "" }, every), ...values.map(([value, label]) => element("option", { value }, visible(label)))];
    const specs = [...new Set(this.runs.flatMap((run) => run.rollouts.tables.tasks))];
    const field = (label, input) => {
      input.setAttribute("aria-label", label);
      return element("label", {}, element("span", {}, label), input);
    };
    const changed = () => this.filter();
    this.fields = {
      text: element("input", { type: "search", placeholder: "text, prompt or reason  ( / )", oninput: changed }),
      steps: element("input", { type: "text", inputmode: "numeric", placeholder: "20 or 10-30", size: 10, oninput: changed }),
      task: element("select", { onchange: changed }, choices(specs.map((spec) => [spec, short(spec)]), "all tasks")),
      run: element("select", { onchange: changed }, choices(this.runs.map((run, at) => [at, run.name]), "all runs")),
      verdict: element("select", { onchange: changed }, choices([["solved", "solved"], ["unsolved", "not solved"], ["abstained", "not scored"], ["truncated", "truncated"], ["mixed", "groups with both"]], "any verdict")),
      low: element("input", { type: "number", step: "any", placeholder: "min", "aria-label": "Lowest reward", oninput: changed }),
      high: element("input", { type: "number", step: "any", placeholder: "max", "aria-label": "Highest reward", oninput: changed }),
      order: element("select", { onchange: changed }, [["step", "in order"], ["latest", "latest first"], ["best", "best first"], ["worst", "worst first"], ["longest", "longest first"]].map(([value, label]) => element("option", { value }, label))),
    };
    const { text, steps, task, run, verdict, low, high, order } = this.fields;
    this.count = element("p", { class: "count", role: "status" });
    this.space = element("div", { class: "space" });
    this.list = element("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": "Completions", onscroll: () => this.lines(), onkeydown: (event) => this.key(event) }, this.space);
    this.detail = element("div", { class: "detail", tabindex: 0, role: "region", "aria-label": "The chosen completion and its group" });
    new ResizeObserver(() => this.lines()).observe(this.list);
    return section("rollouts", "Completions",
      element("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
        field("search", text), field("steps", steps), specs.length > 1 ? field("task", task) : null, this.runs.length > 1 ? field("run", run) : null,
        field("verdict", verdict), element("span", { class: "pair", role: "group", "aria-label": "Reward" }, element("span", {}, "reward"), low, high), field("order", order)),
      element("div", { class: "browser" }, element("div", { class: "side" }, this.count, this.list), this.detail));
  }

  /** Texts in lower case, made at the first search: one long string a completion. */
  lower(run, at) {
    this.inLower ??= this.runs.map(({ rollouts }) => {
      const prompts = rollouts.tables.prompts.map((each) => each.toLowerCase()), whys = rollouts.tables.whys.map((each) => each.toLowerCase());
      const rows = rollouts.groups.map((group) => `${group[5]}`.toLowerCase());
      return { prompts, whys, rows, texts: rollouts.text.map((each) => each.toLowerCase()) };
    });
    return this.inLower[run];
  }

  filter() {
    const { text, steps, task, run, verdict, low, high, order } = Object.fromEntries(Object.entries(this.fields).map(([name, input]) => [name, input.value]));
    const range = stepsOf(steps);
    this.fields.steps.setAttribute("aria-invalid", String(range === null));
    const [first, last] = range ?? [0, Infinity];
    const wanted = text.toLowerCase(), least = low === "" ? -Infinity : Number(low), most = high === "" ? Infinity : Number(high);
    const byReward = low !== "" || high !== "", onlyRun = run === "" ? -1 : Number(run);
    const kept = [];
    let base = 0;
    this.runs.forEach(({ rollouts }, number) => {
      const { groups, group, flags, reward, why } = rollouts;
      const tasks = rollouts.tables.tasks.map((spec) => !task || spec === task);
      const inGroup = groups.map((each) => each[0] >= first && each[0] <= last && tasks[each[1]]);
      const mixed = verdict === "mixed" ? mixedGroups(rollouts) : null;
      const searched = wanted ? this.lower(number) : null;
      const foundPrompt = searched?.prompts.map((each) => each.includes(wanted)), foundWhy = searched?.whys.map((each) => each.includes(wanted)), foundRow = searched?.rows.map((each) => each.includes(wanted));
      if (onlyRun < 0 || onlyRun === number) {
        for (let at = 0; at < group.length; at++) {
          const own = group[at];
          if (!inGroup[own]) continue;
          if (byReward && !(reward[at] !== null && reward[at] >= least && reward[at] <= most)) continue;
          if (verdict && !(verdict === "mixed" ? mixed[own] : judged(flags[at], verdict))) continue;
          if (searched && !(foundPrompt[groups[own][3]] || foundWhy[why[at]] || foundRow[own] || searched.texts[at].includes(wanted))) continue;
          kept.push(base + at);
        }
      }
      base += group.length;
    });
    this.shown = this.ordered(kept, order);
    this.list.scrollTop = 0;
    const before = this.chosen;
    this.chosen = this.shown.length ? (before >= 0 && this.shown.includes(before) ? before : this.shown[0]) : -1;
    this.update();
    if (this.chosen !== before) this.show();
  }

  ordered(kept, order) {
    const of = (column) => (at) => { const [run, place] = this.index[at]; return this.runs[run].rollouts[column][place]; };
    const reward = of("reward"), tokens = of("tokens");
    if (order === "latest") kept.reverse();
    if (order === "best") kept.sort((a, b) => (reward(b) ?? -Infinity) - (reward(a) ?? -Infinity));
    if (order === "worst") kept.sort((a, b) => (reward(a) ?? Infinity) - (reward(b) ?? Infinity));
    if (order === "longest") kept.sort((a, b) => tokens(b) - tokens(a));
    return Int32Array.from(kept);
  }

  update() {
    const all = this.index.length, total = this.runs.reduce((sum, run) => sum + run.rollouts.total, 0);
    this.count.textContent = `${this.shown.length.toLocaleString("en")} of ${plural(all, "completion")}${total > all ? `, from some of the steps; ${total.toLocaleString("en")} in all` : ""}`;
    this.space.style.height = `${this.shown.length * LINE}px`;
    this.lines();
  }

  /** Draw the lines that are visible, and a few beside them. */
  lines() {
    const from = Math.max(0, Math.floor(this.list.scrollTop / LINE) - PAGE_MARGIN);
    const to = Math.min(this.shown.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / LINE) + PAGE_MARGIN);
    this.space.replaceChildren(...Array.from({ length: Math.max(0, to - from) }, (_, offset) => this.line(from + offset)));
    const isVisible = this.space.querySelector("[aria-selected=true]");
    if (isVisible) this.list.setAttribute("aria-activedescendant", isVisible.id);
    else this.list.removeAttribute("aria-activedescendant");
  }

  line(place) {
    const at = this.shown[place], [run, index] = this.index[at], { rollouts } = this.runs[run];
    const group = rollouts.groups[rollouts.group[index]], verdict = verdictOf(rollouts.flags[index]);
    return element("div", {
      class: "line", id: `line-${at}`, role: "option", "aria-selected": String(at === this.chosen), "aria-posinset": place + 1, "aria-setsize": this.shown.length,
      style: { top: `${place * LINE}px` }, onclick: () => this.choose(place),
    },
      element("span", { class: `mark ${verdict.tone}`, title: verdict.word, "aria-label": verdict.word }, verdict.sign),
      element("span", { class: "what" },
        element("span", { class: "excerpt" }, visible(excerpt(movesOf(rollouts, index).slice(1).map(({ caption }) => caption).join("  ") || rollouts.text[index])) || "(empty)"),
        element("span", { class: "where" }, `step ${group[0]} · ${visible(short(rollouts.tables.tasks[group[1]]))} · ${visible(group[5].slice(0, 60))}${rollouts.role[index] ? ` · ${visible(rollouts.role[index])}` : ""}`)),
      element("span", { class: "reward" }, number(rollouts.reward[index])));
  }

  key(event) {
    const here = this.shown.indexOf(this.chosen), page = Math.max(1, Math.floor(this.list.clientHeight / LINE) - 1);
    const moves = { ArrowDown: here + 1, j: here + 1, ArrowUp: here - 1, k: here - 1, PageDown: here + page, PageUp: here - page, Home: 0, End: this.shown.length - 1 };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.choose(Math.min(this.shown.length - 1, Math.max(0, moves[event.key])));
  }

  choose(place) {
    if (place < 0 || place >= this.shown.length) return;
    this.chosen = this.shown[place];
    const top = place * LINE, { scrollTop, clientHeight } = this.list;
    if (top < scrollTop) this.list.scrollTop = top;
    else if (top + LINE > scrollTop + clientHeight) this.list.scrollTop = top + LINE - clientHeight;
    this.lines();
    this.show();
  }

  /** Show the prompt of the chosen completion, and its whole group side by side. */
  show() {
    if (this.chosen < 0) {
      this.detail.replaceChildren(element("p", { class: "empty" }, "No completion matches. Change the filters."));
      return;
    }
    const [run, index] = this.index[this.chosen], { rollouts, name } = this.runs[run];
    const own = rollouts.group[index], group = rollouts.groups[own];
    let first = index, last = index;
    while (first > 0 && rollouts.group[first - 1] === own) first--;
    while (last + 1 < rollouts.group.length && rollouts.group[last + 1] === own) last++;
    const members = Array.from({ length: last - first + 1 }, (_, offset) => first + offset);
    const scored = members.filter((at) => !(rollouts.flags[at] & ABSTAINED)), mean = scored.reduce((sum, at) => sum + (rollouts.reward[at] ?? 0), 0) / (scored.length || 1);
    const facts = [`step ${group[0]}`, visible(rollouts.tables.tasks[group[1]]), `row ${visible(group[5])}`, this.runs.length > 1 ? visible(name) : null, group[6] ? `${group[6]} (pass rate ${number(group[7])})` : null,
      `${members.filter((at) => rollouts.flags[at] & SOLVED).length} of ${members.length} solved, mean reward ${number(mean)}`].filter(Boolean);
    const cards = element("div", { class: "cards", tabindex: 0, role: "group", "aria-label": "Completions of the group" }, members.map((at) => card(rollouts, at, at === index, mean)));
    this.detail.replaceChildren(
      element("p", { class: "facts" }, facts.join(" · ")),
      element("h3", {}, "Prompt"), element("pre", { class: "prompt" }, visible(rollouts.tables.prompts[group[3]] || "(not stored; the row is below)")),
      element("details", {}, element("summary", {}, "Row"), element("pre", {}, visible(rollouts.tables.rows[group[4]]))),
      element("h3", {}, `Its ${plural(members.length, "completion")}`), cards);
    const target = cards.querySelector(".chosen");
    cards.scrollLeft = target.offsetLeft - cards.offsetLeft - 8;
    this.detail.scrollTop = 0;
    const [box, pane] = [target, this.detail].map((each) => each.getBoundingClientRect());
    // All of the card where it fits, else its top; the prompt above the first line stays in sight.
    this.detail.scrollTop = target.offsetTop === cards.firstChild.offsetTop && box.height > pane.height ? 0 : Math.min(box.bottom - pane.bottom, box.top - pane.top) + 8;
  }
}

function stepsOf(text) {
  const match = /^\s*(\d+)?\s*(-|–)?\s*(\d+)?\s*$/.exec(text === "all" ? "" : text);
  if (!match) return null;
  const [, from, dash, to] = match;
  return dash ? [Number(from ?? 0), Number(to ?? Infinity)] : from ? [Number(from), Number(from)] : [0, Infinity];
}

function judged(flags, verdict) {
  if (verdict === "truncated") return Boolean(flags & TRUNCATED);
  return verdictOf(flags).name === verdict;
}

function verdictOf(flags) {
  if (flags & ABSTAINED) return { name: "abstained", word: "not scored", sign: "?", tone: "warn" };
  return flags & SOLVED ? { name: "solved", word: "solved", sign: "✓", tone: "good" } : { name: "unsolved", word: "not solved", sign: "✗", tone: "bad" };
}

function mixedGroups({ group, flags, groups }) {
  const kinds = new Uint8Array(groups.length);
  for (let at = 0; at < group.length; at++) if (!(flags[at] & ABSTAINED)) kinds[group[at]] |= flags[at] & SOLVED ? 1 : 2;
  return Array.from(kinds, (kind) => kind === 3);
}

function excerpt(text) {
  return text.slice(0, 300).replace(/\s+/g, " ").trim().slice(0, 140);
}

/** One completion: its score as a tree, its drawings, its text. */
function card(rollouts, at, isChosen, mean) {
  const verdict = verdictOf(rollouts.flags[at]), flags = rollouts.flags[at], fault = rollouts.tables.faults[rollouts.fault[at]];
  const reward = rollouts.reward[at], value = rollouts.value[at];
  const notes = [
    `${plural(rollouts.tokens[at], "token")}${flags & TRUNCATED ? ", truncated" : ""}`,
    rollouts.logprob[at] === null ? null : `log-prob ${fixed(rollouts.logprob[at], 1)}`,
    rollouts.role[at] ? `plays ${visible(rollouts.role[at])}` : null, rollouts.turns[at] > 1 ? plural(rollouts.turns[at], "turn") : null, flags & EXCLUDED ? "left out of the loss" : null,
  ].filter(Boolean);
  const tree = element("ul", { class: "tree" }, element("li", {},
    element("span", { class: `pill ${verdict.tone}` }, `${verdict.sign} ${verdict.word}`), ` ${value === null ? "" : number(value)}`,
    flags & VALID || flags & ABSTAINED ? null : element("span", { class: "pill warn" }, "invalid"),
    fault ? element("span", { class: "pill warn" }, fault) : null,
    reward !== null && reward !== value ? element("div", { class: "note" }, `reward ${number(reward)} after the length penalty`) : null,
    element("ul", {}, rollouts.parts[at].map(([name, part]) => element("li", {}, element("code", {}, visible(rollouts.tables.parts[name])), ` ${number(part)}`)))));
  const why = rollouts.tables.whys[rollouts.why[at]];
  return element("article", { class: `card ${isChosen ? "chosen" : ""}`, "aria-label": `${verdict.word}, reward ${number(reward)}` },
    element("header", {}, element("strong", {}, number(reward)), reward === null ? null : element("span", { class: reward > mean ? "up" : reward < mean ? "down" : "note" }, `${signed(reward - mean)} to the group`)),
    drawings(rollouts, at), movesOf(rollouts, at).length > 1 ? element("details", {}, element("summary", {}, "Text"), said(rollouts, at)) : said(rollouts, at),
    tree, why ? element("p", { class: "why" }, visible(why)) : null,
    element("p", { class: "note" }, notes.join(" · ")));
}

/** Pictures by the task's plugin, or a game's positions, one at a time. */
function drawings(rollouts, at) {
  const frames = rollouts.frames[at]?.map((index) => rollouts.tables.frames[index]);
  if (frames) return stepper(frames.map(([caption, svg, text]) => ({ caption, svg, text })));
  const moves = movesOf(rollouts, at);
  return moves.length > 1 ? stepper(moves, moves.length - 1) : null;
}

/** The positions of a game, each after its move; none of another task. */
function movesOf(rollouts, at) {
  const moves = [{ caption: "start", text: "" }];
  for (const [label, text] of (rollouts.role[at] && rollouts.messages[at]) || []) {
    if (label) moves.push({ caption: `${label}: ${text}`, text: "" });
    else moves.at(-1).text += `${text}\n`;
  }
  return moves.map(({ caption, text }) => ({ caption, text: text.replace(/^\n+|\n+$/g, "") }));
}

function stepper(frames, start = 0) {
  const picture = element("div", { class: "frame" }), place = element("span", { class: "note", role: "status" });
  let at = 0;
  const go = (to) => {
    at = Math.min(frames.length - 1, Math.max(0, to));
    const { caption, svg, text } = frames[at];
    picture.replaceChildren(...[
      caption ? element("p", { class: "caption" }, visible(caption)) : null,
      // An image runs no script and loads nothing, whatever the SVG holds.
      svg ? element("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, alt: visible(caption || "drawing of the completion") }) : null,
      text ? element("pre", {}, visible(text)) : null].filter(Boolean));
    place.textContent = `${at + 1} of ${frames.length}`;
    back.disabled = at === 0;
    forward.disabled = at === frames.length - 1;
  };
  const back = element("button", { type: "button", "aria-label": "Previous", onclick: () => go(at - 1) }, "‹"), forward = element("button", { type: "button", "aria-label": "Next", onclick: () => go(at + 1) }, "›");
  go(start);
  const keys = (event) => { if (event.key === "ArrowLeft" || event.key === "ArrowRight") { event.preventDefault(); go(at + (event.key === "ArrowLeft" ? -1 : 1)); } };
  return element("div", { class: "stepper", onkeydown: keys }, frames.length > 1 ? element("div", { class: "steps" }, back, place, forward) : null, picture);
}

/** How a message is drawn: what tools and users say is context, and not trained. */
function masked(label) {
  return /^(tool |user$|system$|environment$)/.test(label) ? { class: "completion masked", title: "not trained" } : { class: "completion" };
}

/** Who said what in several turns, with the tokens below it; else the text. */
function said(rollouts, at) {
  const messages = rollouts.messages[at];
  if (!messages) return body(rollouts, at);
  const shown = messages.map(([label, text]) => [label ? element("p", { class: "speaker" }, visible(label)) : null, element("pre", masked(label), visible(text) || "(empty)")]).flat();
  return [shown, rollouts.pieces[at] ? element("details", {}, element("summary", {}, "Tokens"), body(rollouts, at)) : null].flat();
}

/** The text; where the log-probs of its tokens are stored, tokens that surprised the policy are coloured. */
function body(rollouts, at) {
  const pieces = rollouts.pieces[at], logprobs = rollouts.logprobs[at], text = rollouts.text[at];
  if (!pieces) return element("pre", { class: "completion" }, visible(text) || "(empty)");
  const marked = element("pre", { class: "completion tokens" }, pieces.map((piece, place) => {
    const logprob = logprobs[place], token = rollouts.tables.vocabulary[piece];
    const level = logprob > -0.1 ? 0 : logprob > -0.7 ? 1 : logprob > -2 ? 2 : logprob > -4 ? 3 : 4;
    return element("span", { class: `s${level}`, title: `p = ${number(Math.exp(logprob))}, log p = ${fixed(logprob)}` }, visible(token));
  }));
  return [marked, element("p", { class: "scale note" }, "surprise ", [0, 1, 2, 3, 4].map((level) => element("span", { class: `s${level}` }, ["none", "\u00a0", "\u00a0", "\u00a0", "high"][level])))];
}
