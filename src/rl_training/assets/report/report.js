// The charts and tables of a report. Without dependencies, and without access to the network except
// for the page itself while `rl-training study serve` shows it.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
  const state = { axis: "steps", hidden: new Set(), focus: null, seeds: false, printing: false };
  let data = { labels: [], charts: [] };
  let charts = [];
  let frame = 0;

  // --- Elements ---------------------------------------------------------------------

  function element(parent, tag, attributes = {}, text = null) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function shape(parent, tag, attributes = {}, text = null) {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  const colorClass = (label) => `c${label % data.colors}`;
  const dashOf = (label) => DASHES[Math.floor(label / data.colors) % DASHES.length];

  function swatch(parent, label) {
    const box = shape(parent, "svg", { class: `swatch ${colorClass(label)}`, viewBox: "0 0 18 10", "aria-hidden": "true" });
    shape(box, "line", { x1: 0, y1: 5, x2: 18, y2: 5, "stroke-dasharray": dashOf(label) });
  }

  // --- Numbers ----------------------------------------------------------------------

  function niceTicks(low, high, count) {
    const span = high - low;
    if (!(span > 0)) return [low];
    const raw = span / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((unit) => unit * power).find((unit) => unit >= raw * 0.999);
    const ticks = [];
    for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * span; index += 1) {
      ticks.push(Math.abs(index * step) < 1e-12 * span ? 0 : index * step);
    }
    return ticks;
  }

  const minus = (text) => text.replace(/^-(?=[0.,]*$)/, "").replace("-", "−");

  function plain(value, step) {
    const size = Math.abs(step) || Math.abs(value) || 1;
    const digits = Math.min(8, Math.max(0, -Math.floor(Math.log10(size) + 1e-9)));
    const fits = Math.abs(value * 10 ** digits - Math.round(value * 10 ** digits)) < 1e-6;
    return minus(value.toLocaleString("en-US", {
      minimumFractionDigits: fits ? digits : digits + 1, maximumFractionDigits: fits ? digits : digits + 1,
    }));
  }

  function count(value) {
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${+(value / size).toPrecision(4)}${unit}`;
    }
    return `${+value.toPrecision(4)}`;
  }

  const TIMES = [[86400, "days"], [3600, "hours"], [60, "minutes"], [1, "seconds"]];

  function axisFormat(kind, high) {
    if (kind === "time") {
      const [size, unit] = TIMES.find(([each]) => high >= 2 * each) || TIMES[3];
      return { scale: size, unit: ` (${unit})`, text: (value, step) => plain(value, step), exact: (value) => `${+value.toPrecision(4)} ${unit}` };
    }
    if (kind === "share") {
      return { scale: 0.01, unit: " (%)", text: (value) => `${+value.toPrecision(4)}`, exact: (value) => `${+value.toPrecision(3)}%` };
    }
    if (kind === "count") return { scale: 1, unit: "", text: count, exact: (value) => Math.round(value).toLocaleString("en-US") };
    return { scale: 1, unit: "", text: plain, exact: (value) => plain(value, 0.001) };
  }

  const valueText = (value, digits) =>
    minus(value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));

  function nearest(xs, x) {
    let low = 0;
    let high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle;
    }
    return Math.abs(xs[high] - x) < Math.abs(xs[low] - x) ? high : low;
  }

  // --- Charts -----------------------------------------------------------------------

  class Chart {
    constructor(figure, spec) {
      this.figure = figure;
      this.spec = spec;
      this.plot = figure.querySelector(".plot");
      this.plot.replaceChildren();
      this.tip = null;
      this.width = 0;
    }

    begin(height) {
      this.width = Math.max(240, Math.round(this.available()));
      this.height = height;
      this.hideTip();
      this.plot.replaceChildren();
      this.svg = shape(this.plot, "svg", {
        viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-label": this.spec.title,
      });
    }

    // Paper is narrower than most windows: the charts are drawn for it, so that text keeps its size.
    available() {
      if (!state.printing) return this.plot.clientWidth || 600;
      return this.figure.closest(".grid:not(.single)") ? 340 : 690;
    }

    showTip(x, y, fill) {
      if (!this.tip) this.tip = element(this.plot, "div", { class: "tip" });
      this.tip.replaceChildren();
      fill(this.tip);
      const ratio = (this.plot.clientWidth || this.width) / this.width;
      const left = x * ratio + 14 + this.tip.offsetWidth > this.plot.clientWidth
        ? Math.max(0, x * ratio - 14 - this.tip.offsetWidth) : x * ratio + 14;
      this.tip.style.left = `${left}px`;
      const inside = Math.max(0, Math.min(y * ratio, this.height * ratio - this.tip.offsetHeight));
      // In a narrow window, a tip inside would cover the lines.
      this.tip.style.top = this.plot.clientWidth < 480 ? "100%" : `${inside}px`;
    }

    hideTip() {
      if (this.tip) this.tip.remove();
      this.tip = null;
    }
  }

  class LineChart extends Chart {
    constructor(figure, spec) {
      super(figure, spec);
      this.zoom = null;
      this.drag = null;
      const plot = this.plot;
      plot.tabIndex = 0;
      plot.onpointermove = (event) => this.move(event);
      plot.onpointerdown = (event) => this.press(event);
      plot.onpointerup = (event) => this.release(event);
      plot.onpointercancel = () => { this.drag = null; this.leave(); };
      plot.onpointerleave = () => { if (!this.drag) this.leave(); };
      plot.ondblclick = () => this.setZoom(null);
      plot.onkeydown = (event) => this.key(event);
      plot.onblur = () => this.leave();
    }

    get axis() {
      return this.spec.views[state.axis] ? state.axis : Object.keys(this.spec.views)[0];
    }

    get view() { return this.spec.views[this.axis]; }

    shown() { return this.view.series.filter((series) => !state.hidden.has(series.l)); }

    seedLines() {
      const lines = (this.spec.seeds || []).filter((seed) => !state.hidden.has(seed.l) && (state.seeds || state.focus === seed.l));
      return lines.map((seed) => ({ ...seed, x: this.axis === "time" ? seed.t : this.spec.places[seed.p] }))
        .filter((seed) => seed.x && seed.x.length);
    }

    range(series, seeds) {
      let [low, high] = [Infinity, -Infinity];
      for (const { x } of [...series, ...seeds]) {
        if (x.length) { low = Math.min(low, x[0]); high = Math.max(high, x[x.length - 1]); }
      }
      if (!Number.isFinite(low)) return [0, 1];
      if (this.view.x.kind !== "value" && low > 0 && low < 0.3 * high) low = 0;
      if (low === high) { low -= 0.5; high += 0.5; }
      return [low, high];
    }

    heights(series, seeds, [from, to]) {
      let [low, high] = [Infinity, -Infinity];
      const add = (value) => { if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); } };
      for (const line of [...series, ...seeds]) {
        line.x.forEach((x, index) => {
          // The neighbors of the range count as well, since lines lead to them.
          const inside = x >= from && x <= to;
          const leads = (index + 1 < line.x.length && x < from && line.x[index + 1] > from)
            || (index > 0 && x > to && line.x[index - 1] < to);
          if (!inside && !leads) return;
          add(line.y[index]);
          if (line.lo) { add(line.lo[index]); add(line.hi[index]); }
        });
      }
      if (this.spec.limits) [low, high] = this.spec.limits;
      if (!Number.isFinite(low)) return [0, 1];
      const margin = 0.05 * (high - low) || Math.abs(high) * 0.05 || 0.5;
      return this.spec.limits ? [low - 0.03 * (high - low), high + 0.03 * (high - low)] : [low - margin, high + margin];
    }

    draw() {
      const wide = this.available();
      this.begin(Math.round(Math.min(this.spec.large ? 460 : 330, Math.max(230, wide * 0.62))));
      const series = this.shown();
      const seeds = this.seedLines();
      const domain = this.zoom || this.range(series, seeds);
      const [bottom, top] = this.heights(series, seeds, domain);
      const format = axisFormat(this.view.x.kind, domain[1]);
      const yTicks = niceTicks(bottom, top, this.height / 55);
      const yStep = yTicks.length > 1 ? yTicks[1] - yTicks[0] : 1;
      const names = yTicks.map((tick) => plain(tick, yStep));
      const left = 26 + Math.max(...names.map((name) => name.length)) * 7;
      const box = { left, right: this.width - 14, top: 10, bottom: this.height - 42 };
      this.box = box;
      this.toX = (x) => box.left + ((x - domain[0]) / (domain[1] - domain[0])) * (box.right - box.left);
      this.toY = (y) => box.bottom - ((y - bottom) / (top - bottom)) * (box.bottom - box.top);
      this.fromX = (pixel) => domain[0] + ((pixel - box.left) / (box.right - box.left)) * (domain[1] - domain[0]);
      this.domain = domain;
      this.format = format;
      this.drawAxes(yTicks, names, format);
      this.drawLines(series, seeds);
      this.over = shape(this.svg, "g");
      if (this.zoom) {
        const reset = element(this.plot, "button", { class: "reset", type: "button" }, "Reset zoom");
        reset.onpointerdown = (event) => event.stopPropagation();
        reset.onclick = () => this.setZoom(null);
      }
    }

    drawAxes(yTicks, names, format) {
      const { left, right, top, bottom } = this.box;
      const svg = this.svg;
      yTicks.forEach((tick, index) => {
        const y = this.toY(tick);
        shape(svg, "line", { class: "gridline", x1: left, x2: right, y1: y, y2: y });
        shape(svg, "text", { x: left - 7, y: y + 4, "text-anchor": "end" }, names[index]);
      });
      const [from, to] = this.domain.map((x) => x / format.scale);
      const xTicks = niceTicks(from, to, (right - left) / 80);
      const step = xTicks.length > 1 ? xTicks[1] - xTicks[0] : 1;
      for (const tick of xTicks) {
        const x = this.toX(tick * format.scale);
        shape(svg, "line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 });
        shape(svg, "text", { x, y: bottom + 18, "text-anchor": "middle" }, format.text(tick, step));
      }
      shape(svg, "path", { class: "axis", d: `M${left},${top}V${bottom}H${right}` });
      shape(svg, "text", { x: (left + right) / 2, y: this.height - 5, "text-anchor": "middle" }, this.view.x.label + format.unit);
      shape(svg, "text", {
        x: 0, y: 0, "text-anchor": "middle", transform: `translate(11,${(top + bottom) / 2}) rotate(-90)`,
      }, this.spec.y);
    }

    drawLines(series, seeds) {
      const { left, right, top, bottom } = this.box;
      const id = `clip-${this.spec.id}`;
      const clip = shape(shape(this.svg, "defs"), "clipPath", { id });
      shape(clip, "rect", { x: left, y: top, width: right - left, height: bottom - top });
      const group = shape(this.svg, "g", { "clip-path": `url(#${id})` });
      const place = (xs, ys) => xs.map((x, i) => (ys[i] === null ? null : `${this.toX(x).toFixed(1)},${this.toY(ys[i]).toFixed(1)}`)).filter((p) => p !== null);
      const faded = (label) => (state.focus !== null && state.focus !== label ? " faded" : "");
      for (const line of series) {
        if (!line.lo) continue;
        const points = [...place(line.x, line.hi), ...place(line.x, line.lo).reverse()];
        shape(group, "polygon", { class: `band ${colorClass(line.l)}${faded(line.l)}`, points: points.join(" ") });
      }
      for (const seed of seeds) {
        shape(group, "polyline", { class: `seed ${colorClass(seed.l)}${faded(seed.l)}`, points: place(seed.x, seed.y).join(" ") });
      }
      for (const line of series) {
        const look = `${colorClass(line.l)}${faded(line.l)}`;
        const points = place(line.x, line.y);
        if (points.length === 1) {
          const [x, y] = points[0].split(",");
          shape(group, "circle", { class: `dot ${look}`, cx: x, cy: y, r: 4 });
        }
        shape(group, "polyline", { class: `line ${look}`, "stroke-dasharray": dashOf(line.l), points: points.join(" ") });
      }
    }

    // --- Pointing and zooming ---

    at(event) {
      const place = this.svg.getBoundingClientRect();
      const ratio = this.width / (place.width || 1);
      return [(event.clientX - place.left) * ratio, (event.clientY - place.top) * ratio];
    }

    move(event) {
      const [x, y] = this.at(event);
      if (this.drag) {
        this.drag.to = x;
        this.over.replaceChildren();
        const [from, to] = this.selected();
        shape(this.over, "rect", {
          class: "selection", x: from, y: this.box.top, width: to - from, height: this.box.bottom - this.box.top,
        });
        this.hideTip();
        return;
      }
      if (x < this.box.left - 4 || x > this.box.right + 4 || y < this.box.top || y > this.box.bottom) {
        this.leave();
        return;
      }
      this.point(this.fromX(x), y);
    }

    point(x, y = null) {
      const found = [];
      for (const line of this.shown()) {
        const index = line.x.length ? nearest(line.x, x) : -1;
        const gap = index < 0 ? Infinity : Math.abs(this.toX(line.x[index]) - this.toX(x));
        if (gap < 30 || (index > 0 && index < line.x.length - 1)) found.push({ line, index });
      }
      if (!found.length) { this.leave(); return; }
      let close = null;
      if (y !== null) {
        const gaps = found.map(({ line, index }) => Math.abs(this.toY(line.y[index]) - y));
        const best = gaps.indexOf(Math.min(...gaps));
        if (gaps[best] < 26) close = found[best].line.l;
      }
      if (close !== state.focus && y !== null) setFocus(close, this);
      this.over.replaceChildren();
      const place = this.toX(found[0].line.x[found[0].index]);
      shape(this.over, "line", { class: "cross", x1: place, x2: place, y1: this.box.top, y2: this.box.bottom });
      for (const { line, index } of found) {
        shape(this.over, "circle", {
          class: `dot ${colorClass(line.l)}`, cx: this.toX(line.x[index]), cy: this.toY(line.y[index]), r: 3.5,
        });
      }
      this.last = x;
      found.sort((a, b) => b.line.y[b.index] - a.line.y[a.index]);
      this.showTip(place, y === null ? this.box.top : y, (tip) => this.describe(tip, found));
    }

    describe(tip, found) {
      const digits = this.spec.digits;
      const { line: first, index: at } = found[0];
      element(tip, "div", { class: "range" }, `${this.view.x.label}: ${this.format.exact(first.x[at] / this.format.scale)}`);
      const table = element(tip, "table");
      for (const { line, index } of found.slice(0, 12)) {
        const row = element(table, "tr", { class: state.focus === line.l ? "focus" : "" });
        swatch(element(row, "td"), line.l);
        element(row, "td", { class: "label" }, data.labels[line.l]);
        element(row, "td", { class: "value" }, valueText(line.y[index], digits));
        const range = line.lo ? `[${valueText(line.lo[index], digits)}, ${valueText(line.hi[index], digits)}]` : "";
        element(row, "td", { class: "range" }, line.n ? `${range} ${line.n} ${line.n === 1 ? "run" : "runs"}` : range);
      }
      if (found.length > 12) element(tip, "div", { class: "range" }, `and ${found.length - 12} more`);
    }

    leave() {
      if (this.over) this.over.replaceChildren();
      this.hideTip();
      if (state.focus !== null && state.focusOwner === this) setFocus(null, null);
    }

    press(event) {
      if (event.button !== 0 || event.target.closest("button")) return;
      const [x, y] = this.at(event);
      if (x < this.box.left - 4 || y > this.box.bottom) return;
      this.drag = { from: x, to: x };
      this.plot.setPointerCapture(event.pointerId);
    }

    selected() {
      const inside = (x) => Math.min(this.box.right, Math.max(this.box.left, x));
      const ends = [inside(this.drag.from), inside(this.drag.to)];
      return [Math.min(...ends), Math.max(...ends)];
    }

    release(event) {
      if (!this.drag) return;
      const [from, to] = this.selected();
      this.drag = null;
      if (to - from > 8) {
        this.setZoom([this.fromX(from), this.fromX(to)]);
      } else {
        this.over.replaceChildren();
        this.move(event);
      }
    }

    setZoom(domain) {
      this.zoom = domain;
      this.draw();
    }

    key(event) {
      const [from, to] = this.domain;
      const middle = this.last !== undefined && this.last > from && this.last < to ? this.last : (from + to) / 2;
      const zoomed = (factor) => [middle - (middle - from) * factor, middle + (to - middle) * factor];
      if (event.key === "Escape") this.setZoom(null);
      else if (event.key === "+" || event.key === "=") this.setZoom(zoomed(0.5));
      else if (event.key === "-") this.setZoom(this.zoom ? zoomed(2) : null);
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const step = ((event.key === "ArrowLeft" ? -1 : 1) * (to - from)) / 40;
        this.point(Math.min(to, Math.max(from, (this.last === undefined ? middle : this.last) + step)));
      } else return;
      event.preventDefault();
    }

    focused() { this.draw(); if (this.tip) this.hideTip(); }
  }

  const cut = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text);

  // A comparison keeps the beginnings of both labels.
  function shortName(row, most) {
    if (row.name.length <= most || !row.of) return cut(row.name, most);
    const [first, second] = row.of.map((label) => data.labels[label]);
    const room = most - 3;
    const own = Math.min(first.length, Math.max(Math.floor(room / 2), room - second.length));
    return `${cut(first, own)} > ${cut(second, room - own)}`;
  }

  class DotChart extends Chart {
    draw() {
      const rows = this.spec.rows.filter((row) => !(row.of || [row.l]).some((label) => state.hidden.has(label)));
      this.begin(rows.length * 26 + 52);
      const widest = Math.max(4, ...rows.map((row) => row.name.length));
      const left = Math.min(this.width * 0.46, 14 + widest * 7.2);
      const most = Math.floor((left - 12) / 7);
      const ends = rows.flatMap((row) => [row.v, row.lo, row.hi]).filter((value) => value !== null);
      let low = this.spec.limits ? this.spec.limits[0] : Math.min(...ends);
      let high = this.spec.limits ? this.spec.limits[1] : Math.max(...ends);
      if (!Number.isFinite(low)) [low, high] = [0, 1];
      const margin = 0.06 * (high - low) || Math.abs(high) * 0.1 || 0.5;
      [low, high] = [low - margin, high + margin];
      const right = this.width - 16;
      const bottom = rows.length * 26 + 8;
      const toX = (x) => left + ((x - low) / (high - low)) * (right - left);
      let number = (right - left) / 70;
      let ticks = niceTicks(low, high, number);
      for (; ticks.length < 2 && number < 10; number += 1) ticks = niceTicks(low, high, number);
      const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
      for (const tick of ticks) {
        shape(this.svg, "line", { class: "gridline", x1: toX(tick), x2: toX(tick), y1: 4, y2: bottom });
        shape(this.svg, "text", { x: toX(tick), y: bottom + 17, "text-anchor": "middle" }, plain(tick, step));
      }
      shape(this.svg, "path", { class: "axis", d: `M${left},${bottom}H${right}` });
      if (this.spec.reference !== undefined && this.spec.reference !== null) {
        const x = toX(this.spec.reference);
        shape(this.svg, "line", { class: "reference", x1: x, x2: x, y1: 4, y2: bottom });
      }
      shape(this.svg, "text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, this.spec.x);
      rows.forEach((row, index) => this.drawRow(row, 8 + index * 26 + 11, left, toX, most));
    }

    drawRow(row, y, left, toX, most) {
      const faded = state.focus !== null && !(row.of || [row.l]).includes(state.focus) ? " faded" : "";
      const group = shape(this.svg, "g", { class: `${colorClass(row.l)}${faded}` });
      const name = shortName(row, most);
      shape(shape(group, "text", { class: "name", x: left - 9, y: y + 4, "text-anchor": "end" }, name), "title", {}, row.name);
      if (row.lo !== null) shape(group, "line", { class: "whisker", x1: toX(row.lo), x2: toX(row.hi), y1: y, y2: y });
      shape(group, "circle", { class: "dot", cx: toX(row.v), cy: y, r: 5 });
      const area = shape(group, "rect", { x: 0, y: y - 13, width: this.width, height: 26, fill: "transparent" });
      area.onpointerenter = () => this.showTip(toX(row.v), y - 10, (tip) => {
        element(tip, "div", {}, row.name);
        const digits = this.spec.digits;
        const range = row.lo === null ? "one run" : `[${valueText(row.lo, digits)}, ${valueText(row.hi, digits)}]`;
        element(tip, "div", { class: "range" }, `${valueText(row.v, digits)} ${range}${row.u ? " †" : ""}`);
      });
      area.onpointerleave = () => this.hideTip();
    }

    focused() { this.draw(); }
  }

  // --- State ------------------------------------------------------------------------

  function setFocus(label, owner) {
    state.focus = label;
    state.focusOwner = owner;
    // The chart under the pointer keeps its cross and its tip.
    for (const chart of charts) {
      if (chart !== owner) chart.focused();
      else refocus(chart);
    }
  }

  function refocus(chart) {
    const { tip } = chart;
    chart.tip = null;
    chart.draw();
    if (tip) { chart.tip = tip; chart.plot.append(tip); }
  }

  function redraw() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => charts.forEach((chart) => chart.draw()));
  }

  function pressed(button, on) { button.setAttribute("aria-pressed", String(on)); }

  function showHidden() {
    for (const chip of document.querySelectorAll(".chip")) pressed(chip, !state.hidden.has(Number(chip.dataset.label)));
    for (const row of document.querySelectorAll("tr[data-label]")) {
      row.classList.toggle("off", state.hidden.has(Number(row.dataset.label)));
    }
  }

  function toggle(label, alone) {
    if (alone) {
      const only = data.labels.every((_, other) => other === label || state.hidden.has(other)) && !state.hidden.has(label);
      state.hidden = new Set(only ? [] : data.labels.map((_, other) => other).filter((other) => other !== label));
    } else if (!state.hidden.delete(label)) state.hidden.add(label);
    state.focus = null;
    showHidden();
    redraw();
  }

  function makeToolbar() {
    const chips = document.querySelector(".chips");
    chips.replaceChildren();
    data.labels.forEach((name, label) => {
      const chip = element(chips, "button", {
        class: "chip", type: "button", "data-label": label, "aria-pressed": "true",
        title: `${name}: click to show or hide, double-click to show only this one`,
      });
      swatch(chip, label);
      element(chip, "span", {}, name);
      chip.onclick = (event) => { if (event.detail < 2) toggle(label, event.shiftKey || event.altKey); };
      chip.ondblclick = () => { state.hidden.delete(label); toggle(label, true); };
      chip.onpointerenter = (event) => { if (event.pointerType === "mouse" && !state.hidden.has(label)) setFocus(label, null); };
      chip.onpointerleave = () => { if (state.focus === label) setFocus(null, null); };
    });
    showHidden();
  }

  function wireControls() {
    for (const button of document.querySelectorAll("[data-axis]")) {
      pressed(button, button.dataset.axis === state.axis);
      button.onclick = () => {
        state.axis = button.dataset.axis;
        for (const other of document.querySelectorAll("[data-axis]")) pressed(other, other === button);
        for (const chart of charts) chart.zoom = null;
        redraw();
      };
    }
    const seeds = document.getElementById("seeds");
    pressed(seeds, state.seeds);
    seeds.onclick = () => { state.seeds = !state.seeds; pressed(seeds, state.seeds); redraw(); };
    const theme = document.getElementById("theme");
    theme.onclick = () => {
      const root = document.documentElement;
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    };
    document.querySelector(".controls").classList.remove("hidden");
  }

  // --- Tables -----------------------------------------------------------------------

  function makeSortable(table) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 3) return;
    const original = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = element(null, "button", { type: "button", title: "Sort" }, head.textContent);
      head.replaceChildren(button);
      button.onclick = () => {
        const before = head.getAttribute("aria-sort");
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        if (before === "descending") { body.append(...original); return; }
        const sign = before === "ascending" ? -1 : 1;
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const key = (row) => {
          const cell = row.cells[column];
          return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
        };
        body.append(...[...original].sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x !== null && y !== null) return sign * (x - y);
          if (x !== null || y !== null) return x === null ? 1 : -1;
          return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
        }));
      };
    });
  }

  // --- Start and refresh --------------------------------------------------------------

  function start() {
    data = JSON.parse(document.getElementById("data").textContent);
    const zooms = new Map(charts.map((chart) => [chart.spec.id, chart.zoom]));
    charts = [];
    for (const spec of data.charts) {
      const figure = document.getElementById(spec.id);
      if (!figure) continue;
      const chart = spec.kind === "dots" ? new DotChart(figure, spec) : new LineChart(figure, spec);
      if (zooms.get(spec.id)) chart.zoom = zooms.get(spec.id);
      charts.push(chart);
    }
    makeToolbar();
    wireControls();
    document.querySelectorAll("table.data").forEach(makeSortable);
    charts.forEach((chart) => chart.draw());
  }

  async function refresh() {
    const status = document.getElementById("live");
    try {
      const answer = await fetch(location.pathname, { headers: state.tag ? { "If-None-Match": state.tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        const text = await answer.text();
        if (state.tag) replacePage(text);
        state.tag = answer.headers.get("ETag");
      } else if (answer.status !== 304) throw new Error(String(answer.status));
      status.textContent = `Live: up to date at ${new Date().toLocaleTimeString()}`;
    } catch {
      status.textContent = "The server does not answer: this is the last state.";
    }
    setTimeout(refresh, 1000 * Number(document.documentElement.dataset.live));
  }

  function replacePage(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const names = data.labels;
    const hidden = [...state.hidden].map((label) => names[label]);
    const open = new Set([...document.querySelectorAll("details[open]")].map((details) => details.id));
    document.title = page.title;
    for (const place of ["header", "main", "#data"]) document.querySelector(place).replaceWith(page.querySelector(place));
    for (const details of document.querySelectorAll("details")) details.open = open.has(details.id);
    const now = JSON.parse(document.getElementById("data").textContent).labels;
    state.hidden = new Set(hidden.map((name) => now.indexOf(name)).filter((label) => label >= 0));
    state.focus = null;
    start();
  }

  start();
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; redraw(); } });
  let opened = [];
  function print(printing) {
    state.printing = printing;
    if (printing) opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = printing;
    charts.forEach((chart) => chart.draw());
  }
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  if (document.documentElement.dataset.live) refresh();
})();
