// Draws the charts from #data with Observable Plot, and filters the findings. Whatever it shows stands in the page too.
"use strict";
(() => {
  const GIB = 2 ** 30;
  const COLORS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e"];
  const OTHER = "#9498a0";
  const VERDICTS = {
    fits: { mark: "✓", fill: "var(--fits-back)", ink: "var(--fits)" },
    tight: { mark: "≈", fill: "var(--tight-back)", ink: "var(--tight)" },
    "probably does not fit": { mark: "✗?", fill: "var(--over-back)", ink: "var(--over)" },
    "does not fit": { mark: "✗", fill: "var(--over-back)", ink: "var(--over)" },
  };
  const UNKNOWN = { mark: "", fill: "none", ink: "currentColor" };
  const report = JSON.parse(document.getElementById("data").textContent);

  function gib(bytes) {
    const value = bytes / GIB;
    const places = value >= 100 ? 0 : value >= 1 ? 1 : 2;
    return `${value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })} GiB`;
  }

  function element(name, attributes = {}, ...inside) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  }

  // --- stacked bars per phase, against the capacity -------------------------------------------------------------------

  // A component has the same colour in every chart of the page, unless two of one chart would share it.
  function colored(components) {
    const free = new Set(COLORS);
    const found = new Map();
    for (const component of components) {
      const usual = COLORS[component % COLORS.length];
      if (free.delete(usual)) found.set(component, usual);
    }
    return components.map((component) => {
      if (!found.has(component)) {
        const [next] = free;
        free.delete(next);
        found.set(component, next);
      }
      return found.get(component);
    });
  }

  function bars(chart, width) {
    const totals = new Map();
    for (const phase of chart.phases) {
      for (const [component, bytes] of phase.parts) {
        totals.set(component, Math.max(totals.get(component) ?? 0, bytes));
      }
    }
    const ranked = [...totals].sort((one, other) => other[1] - one[1]).map(([component]) => component);
    const named = ranked.slice(0, COLORS.length);
    const colors = colored(named);
    const label = (component) => (named.includes(component) ? report.components[component] : "other");
    const domain = [...named.map((component) => report.components[component])];
    if (ranked.length > named.length) domain.push("other");
    const rows = chart.phases.flatMap((phase) => {
      const sizes = new Map();
      for (const [component, bytes] of phase.parts) {
        sizes.set(label(component), (sizes.get(label(component)) ?? 0) + bytes);
      }
      return [...sizes].map(([component, bytes]) => ({ phase: phase.name, component, bytes, size: bytes / GIB }));
    });
    const longest = Math.max(...chart.phases.map((phase) => phase.name.length));
    const spans = chart.phases.map(({ name, low, high }) => ({ phase: name, low: low / GIB, high: high / GIB }));
    const limit = chart.capacity === null ? [] : [chart.capacity / GIB];
    const svg = Plot.plot({
      width,
      height: 62 + 34 * chart.phases.length,
      marginLeft: 12 + 6.5 * longest,
      marginRight: 24,
      marginTop: 18,
      marginBottom: 44,
      className: "cfglint-plot",
      style: { fontSize: "12px", background: "none" },
      x: { label: "GiB", labelOffset: 38, grid: true, nice: true, ticks: Math.max(3, Math.floor(width / 90)) },
      y: { label: null, domain: chart.phases.map((phase) => phase.name), padding: 0.3 },
      color: { domain, range: domain.map((name, index) => colors[index] ?? OTHER) },
      marks: [
        Plot.barX(rows, Plot.stackX({ x: "size", y: "phase", fill: "component", order: domain, title: (row) => `${row.phase}: ${row.component} ${gib(row.bytes)}` })),
        Plot.ruleY(spans, { y: "phase", x1: "low", x2: "high", stroke: "currentColor", strokeWidth: 2, title: (row) => `${row.phase}: between ${row.low.toFixed(1)} and ${row.high.toFixed(1)} GiB` }),
        Plot.tickX(spans, { y: "phase", x: "low", stroke: "currentColor", insetTop: 6, insetBottom: 6 }),
        Plot.tickX(spans, { y: "phase", x: "high", stroke: "currentColor", insetTop: 6, insetBottom: 6 }),
        Plot.ruleX(limit, { stroke: "var(--over)", strokeWidth: 2, strokeDasharray: "6 3" }),
        Plot.text(limit, { x: (one) => one, frameAnchor: "top", dy: -14, text: () => "capacity", fill: "var(--over)", textAnchor: "middle" }),
      ],
    });
    // The tables say all of it, and say it better.
    svg.setAttribute("aria-hidden", "true");
    const legend = element("ul", { class: "legend", "aria-hidden": "true" });
    domain.forEach((name, index) => {
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      swatch.setAttribute("width", "11");
      swatch.setAttribute("height", "11");
      const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      box.setAttribute("width", "11");
      box.setAttribute("height", "11");
      box.setAttribute("fill", colors[index] ?? OTHER);
      swatch.append(box);
      legend.append(element("li", {}, swatch, name));
    });
    return [svg, legend];
  }

  // --- what if: micro batch by sequence length --------------------------------------------------------------------------

  function grid(chart, width, place) {
    const cells = chart.cells.flatMap((row, down) =>
      row.map((cell, across) => {
        const [expected, low, high, verdict, phase] = cell ?? [null, null, null, null, null];
        const own = chart.own !== null && down === chart.own[0] && across === chart.own[1];
        return { down, across, expected, low, high, verdict, phase, own, look: VERDICTS[verdict] ?? UNKNOWN };
      }),
    );
    const longest = Math.max(...chart.rows.map((label) => label.length));
    const marginLeft = 32 + 6.5 * longest;
    const narrow = (width - marginLeft) / chart.columns.length < 78;
    const svg = Plot.plot({
      width,
      height: 64 + 40 * chart.rows.length,
      marginLeft,
      marginTop: 40,
      marginRight: 8,
      marginBottom: 6,
      className: "cfglint-plot",
      style: { fontSize: "12px", background: "none" },
      x: { type: "band", axis: "top", label: chart.columnTitle, labelAnchor: "left", labelArrow: "none", labelOffset: 36, domain: chart.columns.map((_, index) => index), tickFormat: (index) => chart.columns[index], tickSize: 0, padding: 0 },
      y: { type: "band", label: chart.rowTitle || null, labelArrow: "none", labelOffset: marginLeft - 6, domain: chart.rows.map((_, index) => index), tickFormat: (index) => chart.rows[index], tickSize: 0, padding: 0 },
      marks: [
        Plot.cell(cells, { x: "across", y: "down", fill: (cell) => cell.look.fill, stroke: (cell) => (cell.own ? "currentColor" : "var(--line)"), strokeWidth: (cell) => (cell.own ? 3 : 1), inset: 2, rx: 4 }),
        Plot.text(cells, { x: "across", y: "down", fill: (cell) => cell.look.ink, fontWeight: 600, pointerEvents: "none", text: (cell) => (cell.expected === null ? "?" : `${narrow ? Math.round(cell.expected / GIB) : gib(cell.expected)} ${cell.look.mark}`) }),
      ],
    });
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "Peak of the step, or of an evaluation that is worse, on one GPU. The arrow keys go from combination to combination.");
    for (const part of svg.children) if (part.getAttribute("aria-label") !== "cell") part.setAttribute("aria-hidden", "true");
    walk([...svg.querySelectorAll('g[aria-label="cell"] > rect')], cells, chart, place);
    return [svg];
  }

  function told(cell, chart) {
    const row = chart.rowNames[cell.down];
    const asked = `${row}${row && ", "}${chart.columnTitle} ${chart.columns[cell.across]}${cell.own ? " (the current run)" : ""}`;
    if (cell.expected === null) return `${asked}: cannot be estimated`;
    const verdict = cell.verdict === null ? "" : `, ${cell.verdict}`;
    return `${asked}: ${gib(cell.expected)} in the ${cell.phase}, between ${gib(cell.low)} and ${gib(cell.high)}${verdict}`;
  }

  function walk(boxes, cells, chart, place) {
    const across = chart.columns.length;
    const readout = place.parentElement.querySelector(".readout");
    const start = Math.max(0, cells.findIndex((cell) => cell.own));
    const show = (index) => { readout.textContent = told(cells[index], chart); };
    const go = (index) => {
      boxes.forEach((box, other) => box.setAttribute("tabindex", other === index ? "0" : "-1"));
      boxes[index].focus();
    };
    boxes.forEach((box, index) => {
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", told(cells[index], chart));
      box.setAttribute("tabindex", index === start ? "0" : "-1");
      box.addEventListener("focus", () => show(index));
      box.addEventListener("pointerenter", () => show(index));
      box.addEventListener("click", () => go(index));
      box.addEventListener("keydown", (event) => {
        const column = index % across;
        const next = {
          ArrowLeft: column > 0 ? index - 1 : index,
          ArrowRight: column < across - 1 ? index + 1 : index,
          ArrowUp: index - across,
          ArrowDown: index + across,
          Home: index - column,
          End: index - column + across - 1,
        }[event.key];
        if (next === undefined) return;
        event.preventDefault();
        if (next >= 0 && next < boxes.length) go(next);
      });
    });
    if (cells.length) show(start);
  }

  // --- drawing: when a chart comes near the window, and again when its width changes ------------------------------------

  const KINDS = { bars, grid };
  const widths = new WeakMap();

  function draw(place) {
    const width = Math.floor(place.clientWidth);
    if (!width || widths.get(place) === width) return;
    widths.set(place, width);
    const chart = report.charts[place.dataset.chart];
    const focused = [...place.querySelectorAll("[tabindex]")].indexOf(document.activeElement);
    place.replaceChildren(...KINDS[chart.kind](chart, width, place));
    if (focused >= 0) place.querySelectorAll("[tabindex]")[focused]?.focus();
  }

  const resized = new ResizeObserver((entries) => entries.forEach((entry) => draw(entry.target)));
  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        near.unobserve(entry.target);
        draw(entry.target);
        resized.observe(entry.target);
      }
    },
    { rootMargin: "600px" },
  );
  document.querySelectorAll(".chart").forEach((place) => near.observe(place));
  addEventListener("beforeprint", () => document.querySelectorAll(".chart").forEach(draw));

  // --- filters --------------------------------------------------------------------------------------------------------

  const form = document.querySelector(".filters");
  if (form) {
    const articles = [...document.querySelectorAll("article.finding")];
    const texts = articles.map((one) => `${one.parentElement.firstElementChild.textContent} ${one.textContent}`.toLowerCase());
    const filter = () => {
      const severities = new Set([...form.querySelectorAll("input:checked")].map((box) => box.value));
      const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      articles.forEach((one, index) => {
        one.hidden = !severities.has(one.dataset.severity) || !words.every((word) => texts[index].includes(word));
        shown += !one.hidden;
      });
      for (const file of document.querySelectorAll(".file")) file.hidden = !file.querySelector("article:not([hidden])");
      form.querySelector(".shown").textContent = shown === articles.length ? "" : `${shown} of ${articles.length} findings shown`;
    };
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    filter();
  }

  // A link to a folded run opens it.
  const unfold = () => {
    const target = /^#run-\d+$/.test(location.hash) && document.querySelector(location.hash);
    if (target) target.querySelector("details").open = true;
  };
  if (document.querySelector(".run > details > summary > h3")) {
    addEventListener("hashchange", unfold);
    unfold();
  }
})();
