
"use strict";
(() => {
  const table = document.querySelector("#board > table");
  const body = table.tBodies[0];
  const heads = [...table.querySelectorAll("thead th[data-c]")];
  const status = document.getElementById("status");
  const rows = [...body.rows].map((row, place) => ({
    row, place, detail: null, values: null, text: row.dataset.text,
    button: row.querySelector("th button"),
  }));

  // Sorting. Values are read from the cells once, missing ones go last whichever way, equal ones keep the ranked order.
  function values(item) {
    if (item.values === null) {
      item.values = [...item.row.cells].map((cell) => {
        const v = cell.dataset.v;
        if (v === undefined) return cell.textContent.trim().toLowerCase();
        return v === "" ? null : v === "inf" ? Infinity : v === "-inf" ? -Infinity : Number(v);
      });
    }
    return item.values;
  }
  function sortBy(head) {
    const best = head.dataset.best;
    const other = best === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === best ? other : best;
    for (const h of heads) h.setAttribute("aria-sort", h === head ? order : "none");
    const c = Number(head.dataset.c);
    const sign = order === "ascending" ? 1 : -1;
    rows.sort((a, b) => {
      const x = values(a)[c], y = values(b)[c];
      if (x === null || y === null) return x === y ? a.place - b.place : x === null ? 1 : -1;
      return x < y ? -sign : x > y ? sign : a.place - b.place;
    });
    const all = document.createDocumentFragment();
    for (const item of rows) {
      all.append(item.row);
      if (item.detail) all.append(item.detail);
    }
    body.append(all);
    status.textContent = `Sorted by ${head.dataset.name}, ${order}.`;
  }
  for (const head of heads) head.querySelector("button").addEventListener("click", () => sortBy(head));

  document.getElementById("find").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    let shown = 0;
    for (const item of rows) {
      const hit = item.text.includes(wanted);
      item.row.hidden = !hit;
      if (item.detail) item.detail.hidden = !hit || item.button.getAttribute("aria-expanded") !== "true";
      shown += hit;
    }
    status.textContent = `${shown} of ${rows.length} submissions.`;
  });
  document.getElementById("columns").addEventListener("click", (event) => {
    const all = table.classList.toggle("all");
    event.target.setAttribute("aria-pressed", String(all));
    event.target.textContent = all ? "Fewer columns" : "All columns";
  });
  const themes = ["system", "light", "dark"];
  document.getElementById("theme").addEventListener("click", (event) => {
    const now = document.documentElement.dataset.theme || "system";
    const next = themes[(themes.indexOf(now) + 1) % themes.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    event.target.textContent = `Theme: ${next}`;
  });

  // Details, built when a row is opened first. Text goes in as text nodes only: names are strangers' words.
  for (const item of rows) item.button.addEventListener("click", () => toggle(item));
  function toggle(item) {
    const open = item.button.getAttribute("aria-expanded") !== "true";
    item.button.setAttribute("aria-expanded", String(open));
    if (open && item.detail === null) {
      const cell = element("td", { colSpan: item.row.cells.length });
      item.detail = element("tr", { className: "detail", id: item.button.getAttribute("aria-controls") }, cell);
      cell.append(details(JSON.parse(document.getElementById(item.row.dataset.data).textContent), item));
      item.row.after(item.detail);
    }
    if (item.detail) item.detail.hidden = !open;
  }

  function element(name, properties, ...children) {
    const node = Object.assign(document.createElement(name), properties || {});
    node.append(...children.filter((child) => child !== null));
    return node;
  }
  function number(value, digits) {
    if (value === null || value === undefined) return "–";
    if (typeof value === "string") return value;
    if (digits !== undefined) return value.toFixed(digits);
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(5)));
  }
  function grid(caption, head, lines, className) {
    const cell = (name) => (text, i) => element(name, { scope: name === "th" ? "col" : "" }, String(text));
    const row = (line) => {
      const first = element("th", { scope: "row" }, String(line[0]));
      return element("tr", {}, first, ...line.slice(1).map(cell("td")));
    };
    const parts = [element("caption", { className: "hidden" }, caption)];
    if (head) parts.push(element("thead", {}, element("tr", {}, ...head.map(cell("th")))));
    parts.push(element("tbody", {}, ...lines.map(row)));
    return element("div", { className: "wide" }, element("table", { className: className || "" }, ...parts));
  }

  function details(d, item) {
    const cards = element("div", { className: "cards" });
    const tasks = Object.entries(d.tasks), intervals = (d.intervals || {}).tasks || {};
    for (const averaged of [true, false]) {
      for (const [task, entry] of tasks) if (entry.in_ood_avg === averaged) cards.append(taskCard(task, entry, intervals[task]));
    }
    cards.append(provenance(d));
    const title = element("h3", {}, item.button.textContent);
    return element("div", { className: "inside" }, title,
      d.notes ? element("p", { className: "dim" }, d.notes) : null, cards);
  }

  function taskCard(task, t, interval) {
    const arrow = t.direction === "higher" ? "↑" : "↓";
    const unit = t.unit === "1" ? "" : ` ${t.unit}`;
    const card = element("section", { className: "card" }, element("h3", {}, `${task}: ${t.metric} ${arrow}`));
    const facts = [["raw, mean over folds", number(t.raw) + unit]];
    if (t.normalized !== null) facts.push(["normalized", number(t.normalized, 4)]);
    if (t.anchor) facts.push(["anchors", `${number(t.anchor.m_min)} to ${number(t.anchor.m_max)}${unit}`]);
    if (interval) {
      const drawn = `${number(interval.raw.num_resamples)} resamples of ${number(interval.raw.num_units)} samples`;
      facts.push(["95% interval, raw", `${number(interval.raw.low)} to ${number(interval.raw.high)}${unit} (${drawn})`],
        ["95% interval, normalized", `${number(interval.normalized.low)} to ${number(interval.normalized.high)}`]);
    }
    for (const [j, name, u] of [[t.jackknife, "normalized", ""], [t.jackknife_raw, "raw", unit]]) {
      if (!j) continue;
      const few = j.underpowered ? ", underpowered" : "";
      facts.push([`jackknife, ${name}`,
        `SE ${number(j.se)}${u}, without one fold ${number(j.low)} to ${number(j.high)}${u} (${j.n} folds${few})`]);
    }
    if (t.gap_pp !== null && t.gap_pp !== undefined) {
      facts.push(["sim-to-real gap", `${number(t.gap_pp, 1)} pp (unclipped ${number(t.gap_unclipped_pp, 1)})`]);
    }
    if (!t.in_ood_avg) facts.push(["OOD-avg", "beside it, never averaged"]);
    card.append(grid(`${task}, summary`, null, facts, "textual"));
    const folds = Object.entries(t.folds || {}).map(([name, fold]) => ({ name, ...fold }));
    if (t.real) folds.push({ name: "real", axis: "real captures", value: t.real_raw, ...t.real });
    if (!folds.length) return card;
    const others = [...new Set(folds.flatMap((f) => Object.keys(f.metrics || {})))].filter((m) => m !== t.metric);
    const counts = ["n_nonfinite", "n_invalid_label", "n_excluded", "n_absent_classes"];
    const validity = (f) => ((f.metrics || {})[t.metric] || {}).validity || {};
    const used = counts.filter((c) => folds.some((f) => validity(f)[c]));
    card.append(element("h4", {}, "Folds and validity"), grid(`${task}, folds`,
      ["fold", "holds out", t.metric + unit, ...others, "n used", ...used.map((c) => c.replace("n_", "").replace("_", " "))],
      folds.map((f) => [f.name, f.axis || "", number(f.value),
        ...others.map((m) => number(((f.metrics || {})[m] || {}).value)),
        validity(f).n_used === undefined ? "–" : `${validity(f).n_used} of ${f.n}`,
        ...used.map((c) => number(validity(f)[c] || 0))])));
    const plots = element("div", { className: "plots" });
    const roc = folds.filter((f) => f.curves && f.curves.roc);
    if (roc.length) plots.append(rocPlot(task, roc), detPlot(task, roc));
    const errors = folds.filter((f) => f.curves && f.curves.errors);
    if (errors.length) plots.append(cdfPlot(task, errors));
    const grouped = folds.filter((f) => f.groups && Object.keys(f.groups).length > 1);
    if (grouped.length) plots.append(groupPlot(task, t, grouped, unit));
    if (plots.children.length) card.append(element("h4", {}, "Curves"), plots, legend(folds));
    for (const f of folds) f.color = undefined;
    return card;
  }

  function provenance(d) {
    const card = element("section", { className: "card" }, element("h3", {}, "Provenance"));
    const p = d.provenance || {};
    const lines = [["result digest", d.digest || "none"], ["release", `${d.release.name}${d.release.frozen ? "" : ", not frozen"}`],
      ["release digest", d.release.digest], ["scored by", `emma-jax ${d.scorer.version}, protocol ${d.protocol_version}`],
      ["scored on", Object.entries(p).map(([k, v]) => `${k} ${v}`).join(", ")]];
    if (d.verified) lines.push(["inputs", d.verified]);
    card.append(grid("Provenance", null, lines, "textual mono"));
    for (const [kind, name] of [["submission", "description"], ["preds", "prediction files"], ["labels", "label files"]]) {
      const files = Object.entries((d.inputs || {})[kind] || {});
      if (!files.length) continue;
      card.append(element("details", {}, element("summary", {}, `sha256 of ${files.length} ${name}`),
        grid(`sha256, ${name}`, null, files, "textual mono")));
    }
    if (d.ignored_files && d.ignored_files.length) {
      card.append(element("p", { className: "dim" }, `Not read: ${d.ignored_files.join(", ")}`));
    }
    return card;
  }

  // Plots: 300 x 220 units, axes with few ticks, one line a fold in a colour and dash of its own.
  const W = 300, H = 220, L = 42, R = 8, T = 8, B = 34;
  function svg(name, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }
  function plot(title, x, y, draw) {
    const px = (v) => L + (W - L - R) * Math.min(Math.max((v - x.low) / (x.high - x.low), 0), 1);
    const py = (v) => H - B - (H - B - T) * Math.min(Math.max((v - y.low) / (y.high - y.low), 0), 1);
    const root = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
    for (const [at, label] of x.ticks) {
      const anchor = px(at) > W - R - 12 ? "end" : label.length > 4 && px(at) < L + 12 ? "start" : "middle";
      root.append(svg("path", { class: "grid", d: `M${px(at)} ${T}V${H - B}` }),
        svg("text", { x: px(at), y: H - B + 13, "text-anchor": anchor }, label));
    }
    for (const [at, label] of y.ticks) {
      root.append(svg("path", { class: "grid", d: `M${L} ${py(at)}H${W - R}` }),
        svg("text", { x: L - 4, y: py(at) + 4, "text-anchor": "end" }, label));
    }
    root.append(svg("path", { class: "axis", d: `M${L} ${T}V${H - B}H${W - R}` }),
      svg("text", { x: (L + W - R) / 2, y: H - 4, "text-anchor": "middle" }, x.name),
      svg("text", { transform: `translate(10 ${(T + H - B) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.name));
    const line = (points, i) => root.append(svg("path", {
      class: `line s${i % 8} d${Math.floor(i / 8 + i) % 4}`,
      d: points.map(([a, b], k) => `${k ? "L" : "M"}${px(a).toFixed(1)} ${py(b).toFixed(1)}`).join(""),
    }));
    const mark = (a, b, i, text) => root.append(svg("circle", { class: `mark f${i % 8}`, cx: px(a), cy: py(b), r: 3.5 },
      svg("title", {}, text)));
    const chance = (points) => root.append(svg("path", { class: "chance",
      d: points.map(([a, b], k) => `${k ? "L" : "M"}${px(a)} ${py(b)}`).join("") }));
    draw({ line, mark, chance });
    return element("figure", {}, root, element("figcaption", {}, title));
  }
  function colour(folds) {
    folds.forEach((f, i) => { if (f.color === undefined) f.color = i; });
  }
  function legend(folds) {
    const keys = folds.filter((f) => f.color !== undefined).map((f) => {
      const i = f.color;
      const sample = svg("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" },
        svg("path", { class: `line s${i % 8} d${Math.floor(i / 8 + i) % 4}`, d: "M0 4H26" }));
      return element("span", { className: "key" }, sample, f.name);
    });
    return element("p", {}, ...keys);
  }
  const unitTicks = [[0, "0"], [0.25, ".25"], [0.5, ".5"], [0.75, ".75"], [1, "1"]];
  function rates(roc) {
    return roc.fp.map((fp, i) => [fp / roc.negatives, roc.tp[i] / roc.positives]);
  }
  function rocPlot(task, folds) {
    colour(folds);
    const kind = folds[0].curves.roc.trials;
    return plot(`${task}: ROC, ${kind} trials; dots: equal error`, { name: "false accepts", low: 0, high: 1, ticks: unitTicks },
      { name: "true accepts", low: 0, high: 1, ticks: unitTicks }, ({ line, mark, chance }) => {
        chance([[0, 0], [1, 1]]);
        for (const f of folds) line(rates(f.curves.roc), f.color);
        for (const f of folds) {
          const e = f.curves.roc.eer;
          mark(e, 1 - e, f.color, `${f.name}: EER ${number(e, 4)} at threshold ${number(f.curves.roc.threshold)}`);
        }
      });
  }
  // Inverse of the normal distribution function by bisection: a few hundred values a plot.
  function probit(p) {
    let low = -4.5, high = 4.5;
    for (let i = 0; i < 40; i++) {
      const x = (low + high) / 2;
      if (phi(x) < p) low = x; else high = x;
    }
    return (low + high) / 2;
  }
  function phi(x) {
    const t = 1 / (1 + 0.2316419 * Math.abs(x));
    const tail = 0.3989422804014327 * Math.exp(-x * x / 2) *
      t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
    return x > 0 ? 1 - tail : tail;
  }
  function detPlot(task, folds) {
    colour(folds);
    const shown = [0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95];
    const axis = (name) => ({ name, low: probit(0.0005), high: probit(0.98),
      ticks: shown.map((p) => [probit(p), p < 0.01 ? ".1%" : `${Math.round(100 * p)}%`]) });
    return plot(`${task}: DET, normal deviates; dots: equal error`, axis("false accepts"), axis("false rejects"),
      ({ line, mark, chance }) => {
        chance([[probit(0.0005), probit(0.0005)], [probit(0.98), probit(0.98)]]);
        for (const f of folds) {
          line(rates(f.curves.roc).map(([far, tpr]) => [probit(far), probit(1 - tpr)]), f.color);
        }
        for (const f of folds) {
          const e = f.curves.roc.eer;
          mark(probit(e), probit(e), f.color, `${f.name}: EER ${number(e, 4)}`);
        }
      });
  }
  function ticks(low, high) {
    const raw = (high - low) / 4, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push([v, number(Number(v.toPrecision(6)))]);
    return found;
  }
  function cdfPlot(task, folds) {
    colour(folds);
    // The axis ends at the largest 98% point: one stray angle would squeeze the rest into a corner.
    const high = Math.max(1e-6, ...folds.map((f) => f.curves.errors[f.curves.errors.length - 2]));
    return plot(`${task}: distribution of the angular error, to its 98% point`, { name: "error in degrees", low: 0, high, ticks: ticks(0, high) },
      { name: "share of samples", low: 0, high: 1, ticks: unitTicks }, ({ line }) => {
        for (const f of folds) {
          const q = f.curves.errors;
          const points = [[0, 0]];
          q.slice(0, -1).forEach((v, i) => points.push([v, i / (q.length - 1)]));
          line(points, f.color);
        }
      });
  }
  function groupPlot(task, t, folds, unit) {
    colour(folds);
    const names = [...new Set(folds.flatMap((f) => Object.keys(f.groups)))];
    const numeric = names.every((n) => n.trim() !== "" && Number.isFinite(Number(n)));
    const words = ["low", "mid", "high"];
    const rank = (n) => {
      const digits = n.match(/-?\d+(\.\d+)?/), word = words.findIndex((w) => n.toLowerCase().includes(w));
      return digits ? Number(digits[0]) : word;
    };
    names.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0));
    const at = (n) => numeric ? Number(n) : names.indexOf(n);
    const value = (f, n) => {
      const v = ((f.groups[n] || {})[t.metric] || {}).value;
      return typeof v === "number" ? v : null;
    };
    const all = folds.flatMap((f) => names.map((n) => value(f, n))).filter((v) => v !== null);
    if (!all.length) return "";
    let low = Math.min(...all), high = Math.max(...all);
    if (t.unit === "1" && low >= 0 && high <= 1) { low = 0; high = 1; }
    if (t.unit === "deg") low = 0;
    if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
    const first = Math.min(...names.map(at)), last = Math.max(...names.map(at));
    const few = names.filter((n, i) => i % Math.ceil(names.length / 6) === 0);
    const x = { name: numeric ? "group (number)" : "group", low: first, high: last,
      ticks: few.map((n) => [at(n), n.length > 11 ? `${n.slice(0, 10)}…` : n]) };
    return plot(`${task}: ${t.metric} by group`, x,
      { name: t.metric + unit, low, high, ticks: low === 0 && high === 1 ? unitTicks : ticks(low, high) },
      ({ line, mark }) => {
        for (const f of folds) {
          const points = names.filter((n) => value(f, n) !== null).map((n) => [at(n), value(f, n)]);
          line(points, f.color);
          for (const [a, b] of points) mark(a, b, f.color, `${f.name}: ${number(b)}`);
        }
      });
  }
})();
