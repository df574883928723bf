// Draws a comparison from the JSON beside it.
"use strict";
(() => {
  const { $, data: D, hue, format, percent, el, svg, picture, spot, themes, saves, drawnSvg, contents } = Page;
  const [one, two] = D.names;
  const k = Math.max(...D.pairs.map((p) => Math.max(p.before ?? -1, p.after ?? -1))) + 1;
  const count = (n) => n.toLocaleString("en");
  const rows = (n) => `${count(n)} ${n === 1 ? "row" : "rows"}`;
  const matchOf = new Map(D.pairs.filter((p) => p.before !== null && p.after !== null).map((p) => [p.after, p.before]));
  const called = (side, j) => (D.called[side][j] ? `${j} ${D.called[side][j]}` : String(j));
  const before = (i) => hue(i, k);
  const after = (j) => (matchOf.has(j) ? before(matchOf.get(j)) : "var(--quiet)");

  function summary() {
    $("sentence").textContent = D.sentence;
    const tiles = [["rows", D.totals[0] === D.totals[1] ? count(D.totals[1]) : `${count(D.totals[0])} → ${count(D.totals[1])}`, `${one} → ${two}`]];
    if (D.stayed !== null) tiles.push(["stay", percent(D.stayed), "with the matched cluster"], ["agreement", D.agreement.toFixed(2), "adjusted Rand index"]);
    if (D.far !== null) tiles.push(["far", percent(D.far), D.moved_away ? "the later rows have moved away" : "beyond 99 % of the earlier rows: no drift"]);
    $("tiles").replaceChildren(...tiles.map(([name, value, note]) => el("div", { class: "tile" }, el("span", {}, name), el("b", {}, value), el("span", {}, note))));
  }

  function name(side, j, tone, match) {
    if (j === null) return el("span", { class: "note" }, match);
    return el("span", { class: "which" }, spot(tone), called(side, j));
  }

  function shares(p) {
    const widest = Math.max(...D.pairs.flatMap((each) => each.shares), 1e-9);
    const bar = (share, tone, words) => el("div", { class: "share" }, el("i", { style: { width: `${(62 * share) / widest}%`, background: tone } }), el("span", {}, words));
    return el("div", {}, bar(p.shares[0], "var(--quiet)", percent(p.shares[0])), bar(p.shares[1], p.after === null ? "var(--quiet)" : after(p.after), percent(p.shares[1])));
  }

  function pairs() {
    const dates = D.far !== null, centers = D.pictures && D.pictures.centers;
    const head = [D.flows ? `cluster of ${one}` : "cluster", ...(D.flows ? [`of ${two}`] : []), `share of ${one}, of ${two}`, "change", ...(dates ? ["distance", "far", "how the new rows differ"] : ["rows in both"])];
    const lines = D.pairs.map((p) => {
      const change = 100 * (p.shares[1] - p.shares[0]);
      const cells = [el("td", {}, el("div", { class: "which" }, centers && p.before !== null ? picture(D.pictures.centers, p.before, 36, `Centre of cluster ${p.before}`) : null, name(0, p.before, p.before === null ? "" : before(p.before), "none: it is new")))];
      if (D.flows) cells.push(el("td", {}, name(1, p.after, p.after === null ? "" : after(p.after), "none: it is gone")));
      cells.push(el("td", { class: "wide" }, shares(p)));
      cells.push(el("td", { class: "number" }, `${change > 0 ? "+" : change < 0 ? "−" : ""}${Math.abs(change).toFixed(1)}`, p.drifted ? el("b", { class: "drift", title: "more than three standard errors" }, " beyond chance") : null));
      if (dates) cells.push(el("td", { class: "number" }, p.distance === null ? "–" : `× ${format(p.distance)}`), el("td", { class: "number" }, p.far === null ? "–" : percent(p.far)), el("td", { class: "wide" }, p.said.join("; ") || "–"));
      else cells.push(el("td", { class: "number" }, count(p.shared)));
      return el("tr", { "data-before": p.before, "data-after": p.after }, ...cells);
    });
    if (!D.flows) $("pairs-title").textContent = "What changed in each cluster";
    $("pairs-note").textContent = (D.flows ? "Clusters are matched one to one, so that as many rows as possible stay. " : "") + "The upper bar is the earlier share, the lower bar the later one; the change is in percentage points." + (dates ? " Distance: mean squared distance to the centre, later rows over earlier ones." : "");
    $("pairs").replaceChildren(el("table", { class: "plain pairs" }, el("thead", {}, el("tr", {}, ...head.map((words) => el("th", { scope: "col" }, words)))), el("tbody", {}, ...lines)));
  }

  // Bars on both sides, one a cluster, in the order of the matches; bands between them.
  function flows() {
    if (!D.flows) return;
    $("flows-section").hidden = false;
    const total = D.flows.flat().reduce((a, b) => a + b, 0);
    const left = D.pairs.filter((p) => p.before !== null).map((p) => p.before), right = D.pairs.filter((p) => p.after !== null).map((p) => p.after);
    const gap = 6, tall = Math.max(260, 26 * Math.max(left.length, right.length)), scale = tall / total;
    const of = (i, j) => D.flows[i][j], sum = (values) => values.reduce((a, b) => a + b, 0);
    const place = (order, size) => { let y = 0; const found = new Map(); for (const j of order) { const h = size(j) * scale; found.set(j, { y, h, used: 0 }); y += Math.max(h, 12) + gap; } return [found, y]; };
    const [L, a] = place(left, (i) => sum(right.map((j) => of(i, j)))), [R, b] = place(right, (j) => sum(left.map((i) => of(i, j))));
    const height = Math.max(a, b), wide = Math.min(720, Math.max(330, $("flows").clientWidth)), x0 = 92, x1 = wide - 92;
    const box = svg("svg", { viewBox: `0 -22 ${wide} ${height + 24}`, class: "flows", role: "group", "aria-label": D.sentence });
    const label = (x, y, words, anchor, weight = 400) => { const text = svg("text", { x, y, "text-anchor": anchor, "font-weight": weight }); text.textContent = words; return text; };
    box.append(label(x0 - 6, -8, one, "end", 600), label(x1 + 6, -8, two, "start", 600));
    const bands = [];
    for (const i of left) for (const j of right) {
      const flow = of(i, j), h = flow * scale;
      if (!flow) continue;
      const from = L.get(i), to = R.get(j), y0 = from.y + from.used, y1 = to.y + to.used, middle = (x0 + x1) / 2 + 3;
      from.used += h;
      to.used += h;
      const move = D.moves.findIndex((each) => each.before === i && each.after === j);
      const band = svg("path", { d: `M${x0 + 10},${y0} C${middle},${y0} ${middle},${y1} ${x1 - 10},${y1} V${y1 + h} C${middle},${y1 + h} ${middle},${y0 + h} ${x0 + 10},${y0 + h} Z`, class: matchOf.get(j) === i ? "band stays" : "band moves", style: `fill: ${before(i)}`, "data-flow": `${i}-${j}` });
      const title = svg("title", {});
      title.textContent = `${rows(flow)}: ${called(0, i)} of ${one} → ${called(1, j)} of ${two}`;
      band.append(title);
      bands.push(move >= 0 ? svg("a", { href: `#move-${move}`, "aria-label": title.textContent }, band) : band);
    }
    box.append(...bands);
    for (const [order, at, x, tone, anchor] of [[left, L, x0, before, "end"], [right, R, x1 - 10, after, "start"]]) {
      for (const j of order) {
        const { y, h } = at.get(j);
        box.append(svg("rect", { x, y, width: 10, height: Math.max(h, 2), rx: 2, style: `fill: ${tone(j)}` }));
        box.append(label(anchor === "end" ? x - 6 : x + 16, y + Math.max(h, 12) / 2 + 4, `${j} · ${count(Math.round(h / scale))}`, anchor));
      }
    }
    $("flows").replaceChildren(box);
    saves("save-flows", "flows", "the flows", (format) => drawnSvg(box, format));
  }

  function moves() {
    if (!D.moves.length) return;
    $("moves-section").hidden = false;
    const moved = Math.round((1 - D.stayed) * D.flows.flat().reduce((a, b) => a + b, 0));
    const told = D.moves.reduce((all, move) => all + move.size, 0);
    $("moves-note").textContent = `${count(moved)} rows leave the matched cluster; the ${D.moves.length} largest moves have ${count(told)} of them. Rows for which both models are certain come first.`;
    const at = new Map(D.rows.map((row, i) => [row, i]));
    $("moves").replaceChildren(...D.moves.map((move, number) => {
      const card = el("article", { class: "card", id: `move-${number}`, tabindex: "-1" },
        el("h3", {}, spot(before(move.before)), `${called(0, move.before)} of ${one} → `, spot(after(move.after)), `${called(1, move.after)} of ${two}`),
        el("p", { class: "note" }, rows(move.size)));
      if (move.said.length) card.append(el("h4", {}, `What distinguishes them within cluster ${move.before}`), el("ul", {}, ...move.said.map((fact) => el("li", {}, fact))));
      card.append(el("h4", {}, "Some of them"), el("div", { class: D.pictures ? "gallery" : "gallery texts" }, ...move.rows.map((row) => {
        const words = D.captions[at.get(row)] || "";
        const small = el("small", {}, `Row ${row}`);
        if (D.pictures) return el("figure", { class: "moved", title: words }, picture(D.pictures.rows, at.get(row), 42, `Row ${row}`), small);
        return el("div", { class: "moved thumb text" }, small, words.length > 150 ? words.slice(0, 149) + "…" : words);
      })));
      return card;
    }));
  }

  themes(() => {});
  summary();
  pairs();
  flows();
  moves();
  contents();
  document.documentElement.dataset.ready = "yes";
})();
