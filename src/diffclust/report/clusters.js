// The cards of the clusters: name, centre, what sets them apart, their values against all rows, their words where they
// stand, their rows.
"use strict";
const Clusters = (() => {
  const { $, data: D, format, percent, el, svg, picture } = Page;
  const { colour, dot, button, bars } = Rows;
  const M = D.map;

  const WIDE = 140, TALL = 34;
  function spread({ name, places, range, whole }, shares, j) {
    const most = Math.max(...whole, ...shares, 1e-9), step = WIDE / whole.length;
    const bar = (share, at, gap, fill, opacity) => svg("rect", { x: at * step + gap, y: TALL - (TALL * share) / most, width: Math.max(step - 2 * gap, 0.8), height: (TALL * share) / most, style: `fill: ${fill}; opacity: ${opacity}` });
    const apart = whole.map((share, at) => Math.abs(shares[at] - share)), widest = apart.indexOf(Math.max(...apart));
    const where = (at) => (range ? `part ${at + 1} of ${whole.length} between ${places[0]} and ${places[1]}` : places[at]);
    const words = `${name}: ${where(widest)} has ${percent(shares[widest])} of the cluster, ${percent(whole[widest])} of all rows`;
    const box = svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, class: "spread", role: "img", "aria-label": words, preserveAspectRatio: "none" });
    whole.forEach((share, at) => box.append(bar(share, at, 0, "var(--grey)", 1), bar(shares[at], at, step * 0.16, colour(j), 0.85)));
    const title = svg("title", {});
    title.textContent = words;
    box.append(title);
    const each = !range && places.length <= 4, below = each || range ? places : [places[0], places[places.length - 1]];
    return el("div", { class: "column" }, el("div", { class: "title", title: name }, name), box, el("div", { class: each ? "ends each" : "ends" }, ...below.map((words) => el("span", { title: words }, words))));
  }

  // The mean of the cluster in its colour, the band of its rows around it, and the mean of all rows in grey.
  function curve([mean, low, high], j) {
    const { names, whole, reach: [least, most] } = D.curves, tall = 90, last = names.length - 1;
    const x = (at) => ((at * WIDE * 2) / last).toFixed(1), y = (value) => (tall - (tall * (value - least)) / (most - least || 1)).toFixed(1);
    const line = (values) => values.map((value, at) => `${x(at)},${y(value)}`).join(" ");
    const words = `Mean of the cluster and the band of 80 % of its rows, over ${names.length} columns from ${names[0]} to ${names[last]}; in grey the mean of all rows`;
    const box = svg("svg", { viewBox: `0 0 ${WIDE * 2} ${tall}`, class: "curve", role: "img", "aria-label": words, preserveAspectRatio: "none" });
    const stroke = (values, tone, width) => svg("polyline", { points: line(values), style: `fill: none; stroke: ${tone}; stroke-width: ${width}; vector-effect: non-scaling-stroke` });
    const band = line(low) + " " + high.map((value, at) => `${x(at)},${y(value)}`).reverse().join(" ");
    box.append(svg("polygon", { points: band, style: `fill: ${colour(j)}; opacity: 0.22` }), stroke(whole, "var(--grey)", 2), stroke(mean, colour(j), 2));
    const title = svg("title", {});
    title.textContent = words;
    box.append(title);
    return el("div", { class: "column" }, box, el("div", { class: "ends" }, el("span", {}, names[0]), el("span", {}, `${format(least)} to ${format(most)}`), el("span", {}, names[last])));
  }

  function context([i, before, word, after], j) {
    return el("li", {}, el("button", { type: "button", class: "context", title: `Row ${M.row[i]}`, onclick: () => { RowMap.select(i); $("map-section").scrollIntoView(); } },
      before, el("mark", { style: { textDecorationColor: colour(j) } }, word), after));
  }

  function nameField(j) {
    const field = el("input", { type: "text", class: "name", value: Names.cluster(j), title: Names.cluster(j), maxlength: "200", autocomplete: "off", placeholder: "name", "aria-label": `Name of cluster ${j}`, "data-name": j });
    field.addEventListener("change", () => Names.nameCluster(j, field.value));
    return field;
  }

  function card(c) {
    const P = D.pictures, galleries = P ? "gallery" : "gallery texts", j = c.cluster;
    const head = el("div", { class: "head" }, P && P.centers ? picture(P.centers, j, 72, `Decoded centre of cluster ${j}`) : null,
      el("div", {}, el("h3", {}, dot(j), `Cluster ${j} `, nameField(j)), el("div", { class: "note" }, `${c.size.toLocaleString("en")} rows, ${percent(c.share)}${c.name && c.name !== Names.cluster(j) ? `: ${c.name}` : ""}`)));
    const facts = [];
    if (c.tightness !== null) facts.push(`${c.tightness < 1 ? "tighter" : "looser"} than average (${format(c.tightness)})`);
    if (c.neighbours.length) facts.push(`nearest: ${c.neighbours.map(([l, away]) => `${l} (at ${format(away)})`).join(", ")}`);
    const box = el("article", { class: "card", "data-cluster": j, "aria-label": `Cluster ${j}` }, head, el("p", { class: "note" }, facts.join("; ") || "no rows"));
    const add = (title, ...parts) => box.append(el("h4", {}, title), ...parts);
    if (c.curve && c.size) add("Its mean and the band of 80 % of its rows (grey: the mean of all)", curve(c.curve, j));
    if (c.words.length) add("Distinctive words", el("p", {}, c.words.join(", ")));
    if (c.contexts.length) add("In context", el("ul", { class: "contexts" }, ...c.contexts.map((each) => context(each, j))));
    if (c.columns.length && !c.words.length) add("Distinctive columns (the whole table in brackets)", el("ul", {}, ...c.columns.map((fact) => el("li", {}, fact))));
    else if (c.features.length && !c.words.length && !(P && !P.heat)) add(D.kind === "table" ? "Distinctive columns (the cluster's mean; standard deviations from the others)" : "Distinctive features (standard deviations from the others)", bars(c.features.map(([name, away, mean]) => [name, away, D.kind === "table" ? format(mean) : ""])));
    if (c.spreads.length) add("Its values (in colour) against all rows (grey)", el("div", { class: "columns" }, ...c.spreads.map(([at, shares]) => spread(D.spreads[at], shares, j))));
    if (c.typical.length) add("Most typical", el("div", { class: galleries }, ...c.typical.slice(0, P ? 6 : 3).map((i) => button(i))));
    if (c.doubtful.length) add("Most doubtful", el("div", { class: galleries }, ...c.doubtful.slice(0, P ? 6 : 3).map((i) => button(i, M.rival[i] === null ? "" : `or ${M.rival[i]}?`))));
    return box;
  }

  function begin() {
    $("cards").replaceChildren(...D.clusters.map(card));
    $("doubtful").className = D.pictures ? "gallery" : "gallery texts";
    $("doubtful").replaceChildren(...D.doubtful.map((i) => button(i, M.rival[i] === null ? "" : `${M.cluster[i]} or ${M.rival[i]}?`)));
    const note = () => {
      $("names-note").textContent = Names.isKept() ? "Name the clusters: this browser remembers the names for this page. Save them to a file for others, and for diffclust.load_names." : "Name the clusters. This browser cannot remember names: save them to a file before you close the page.";
    };
    note();
    Names.tools();
    Names.onChange(() => {
      note();
      for (const field of document.querySelectorAll("input[data-name]")) if (field !== document.activeElement) field.value = Names.cluster(Number(field.dataset.name));
    });
  }

  return { begin };
})();
