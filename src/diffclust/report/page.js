// Draws the report from the JSON beside it. Whatever comes from the data is put on the page as text, never as HTML.
"use strict";
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const M = D.map;
  const { $, PALETTE, hue, css, format, percent, signed, el, picture, figure, spot, grid, themes } = Page;
  const colour = (j) => hue(j, D.k);
  const dot = (j) => spot(colour(j));
  const chance = (p) => (p >= 0.0005 ? p.toFixed(3) : p > 0 ? "less than 0.001" : "0");

  // ---- a row in words

  const short = (name, most) => (name.length <= most ? name : name.slice(0, Math.ceil(most / 2)) + "…" + name.slice(1 - Math.floor(most / 2)));
  const breakable = (name) => name.split(/(?<=[_/.-])/).flatMap((part) => [part, el("wbr")]);

  function brief(i) {
    if (M.caption) return M.caption[i];
    if (!M.features) return "";
    return M.feature[i].slice(0, 4).map((f, at) => `${short(M.features[f], 36)} ${format(M.feature_value[i][at])}`).join(", ");
  }

  function rowButton(i, note) {
    const label = `Row ${M.row[i]}, cluster ${M.cluster[i]}, probability ${chance(M.probability[i])}`;
    const go = () => { select(i); $("map-section").scrollIntoView(); $("map").focus({ preventScroll: true }); };
    if (D.pictures) {
      const small = note ? el("small", {}, note) : null;
      return el("button", { type: "button", class: "thumb", title: M.caption ? `${label}: ${M.caption[i]}` : label, "aria-label": label, onclick: go }, picture(D.pictures.thumbnails, i, 42, label), small);
    }
    const words = brief(i);
    return el("button", { type: "button", class: "thumb text", "aria-label": `${label}: ${words}`, onclick: go },
      el("small", {}, `Row ${M.row[i]}${note ? ", " + note : ""}`), words.length > 150 ? words.slice(0, 149) + "…" : words);
  }

  function bars(lines, sum) {
    const widest = Math.max(...lines.map(([, v]) => Math.abs(v)), 1e-30);
    const body = lines.map(([name, value, note]) => {
      const bar = el("i", { style: { background: value >= 0 ? "var(--for)" : "var(--against)", width: (50 * Math.abs(value)) / widest + "%", [value >= 0 ? "left" : "right"]: "50%" } });
      return el("tr", {}, el("td", {}, el("div", { class: "name" }, el("span", { title: name }, ...breakable(short(name, 56))), note ? el("b", {}, ` = ${note}`) : null)), el("td", { class: "track" }, bar), el("td", {}, signed(value)));
    });
    if (sum) body.push(el("tr", { class: "sum" }, el("td", {}, sum[0]), el("td", {}), el("td", {}, signed(sum[1]))));
    const slim = lines.every(([name, , note]) => (name + (note || "")).length < 16);
    return el("table", { class: slim ? "bars slim" : "bars" }, el("tbody", {}, ...body));
  }

  let selected = -1;
  function select(i, announce = true) {
    selected = i;
    const j = M.cluster[i], l = M.rival[i];
    const parts = [
      el("h3", {}, dot(j), `Row ${M.row[i]} is in cluster ${j}`),
      el("p", {}, l === null ? "There is no other cluster." :
        `Probability ${chance(M.probability[i])}; the runner-up is cluster ${l} with ${chance(M.rival_probability[i])}. It leads by a margin of ${format(M.margin[i])}.`),
    ];
    if (D.truth) parts.push(el("p", { class: "note" }, `True label: ${D.truth.label[i] === null ? "none" : D.truth.classes[D.truth.label[i]]}`));
    if (M.caption && D.kind !== "image") parts.push(el("div", { class: "quote", tabindex: "0" }, M.caption[i]));
    if (M.caption && D.kind === "image") parts.push(el("p", { class: "note" }, M.caption[i]));
    if (D.pictures) {
      const P = D.pictures;
      const strip = el("div", { class: "strip" }, figure(picture(P.thumbnails, i, 96, `Row ${M.row[i]}`), "the row"));
      if (P.heat) strip.append(figure(picture(P.heat, i, 96, "Heat map", true), "what speaks for it (green) and against (red)"));
      if (P.centers) {
        strip.append(figure(picture(P.centers, j, 96, `Centre of cluster ${j}`), `centre of ${j}`));
        if (l !== null) strip.append(figure(picture(P.centers, l, 96, `Centre of cluster ${l}`), `centre of ${l}, the runner-up`));
      }
      parts.push(strip);
    }
    if (M.features && l !== null) {
      parts.push(el("h4", {}, "What counts most in the row"));
      const value = (at) => (D.kind === "text" ? "" : format(M.feature_value[i][at]));
      parts.push(bars(M.feature[i].map((f, at) => [M.features[f], M.feature_weight[i][at], value(at)]).filter(([, weight]) => weight !== 0)));
      if (M.error[i] > 0) parts.push(el("p", { class: "note" }, `By integrated gradients, against ${D.baseline}; completeness error ${percent(M.error[i])}.`));
    } else if (D.pictures && D.pictures.heat && M.error[i] > 0) {
      parts.push(el("p", { class: "note" }, `Heat map by integrated gradients, against ${D.baseline}; completeness error ${percent(M.error[i])}.`));
    }
    if (l !== null) {
      parts.push(el("h4", {}, M.exact ? "The margin, taken apart exactly" : "The margin, taken apart by integrated gradients"));
      if (!M.of_inputs) parts.push(el("p", { class: "note" }, `${M.n_parts > 1 ? `z0 to z${M.n_parts - 1} are` : "z0 is"} what the network makes of the row; each weighs for cluster ${j} (green) or for ${l} (red).`));
      const lines = M.part[i].map((p, at) => [M.parts[p], M.part_value[i][at]]);
      if (M.n_parts > lines.length) lines.push([`${M.n_parts - lines.length} others`, M.part_rest[i]]);
      lines.push(["bias", M.bias[i]]);
      parts.push(bars(lines, ["margin", M.margin[i]]));
    }
    $("panel").replaceChildren(...parts);
    $("panel").dataset.row = M.row[i];
    $("row-number").value = M.row[i];
    $("row-missing").textContent = "";
    if (announce) Plotly.restyle("map", { x: [[M.x[i]]], y: [[M.y[i]]] }, [1]);
  }

  // ---- the map

  let only = null;
  function markerColours() {
    const by = $("colour-by").value;
    if (by === "probability") return { color: M.probability, colorscale: "Viridis", cmin: 0, cmax: 1, showscale: true, colorbar: { thickness: 10, len: 0.6, outlinewidth: 0 } };
    const labels = by === "truth" ? D.truth.label : M.cluster;
    const tone = by === "truth" && D.truth.classes.length > 10 ? (j) => `hsl(${(j * 137.508) % 360} 60% 50%)` : by === "truth" ? (j) => PALETTE[j] : colour;
    return { color: labels.map((j) => (j === null ? css("--quiet") : tone(j))), showscale: false };
  }

  function plain(extra = {}) {
    const hidden = { visible: false, fixedrange: false };
    return {
      margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--quiet"), activecolor: css("--ink") }, plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      font: { color: css("--ink"), family: "system-ui, sans-serif" }, xaxis: hidden, yaxis: { ...hidden, scaleanchor: "x" }, ...extra,
    };
  }
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"]], scrollZoom: false };

  // A number on each cluster, the largest first; where two would overlap, the smaller goes without.
  function medians() {
    const span = (values) => Math.max(...values) - Math.min(...values) || 1;
    const wide = Math.max(span(M.x), span(M.y)), notes = [];
    for (const { cluster: j } of [...D.clusters].sort((a, b) => b.size - a.size)) {
      const mine = M.cluster.map((c, i) => (c === j ? i : -1)).filter((i) => i >= 0);
      if (!mine.length) continue;
      const middle = (values) => mine.map((i) => values[i]).sort((a, b) => a - b)[Math.floor(mine.length / 2)];
      const [x, y] = [middle(M.x), middle(M.y)];
      if (notes.some((other) => Math.abs(other.x - x) < wide / 22 && Math.abs(other.y - y) < wide / 22)) continue;
      notes.push({ x, y, text: String(j), showarrow: false, font: { size: D.k > 20 ? 12 : 15, color: css("--ink") }, bgcolor: css("--card"), bordercolor: colour(j), borderwidth: 2, borderpad: D.k > 20 ? 2 : 3, opacity: 0.88 });
    }
    return notes;
  }

  function drawMap() {
    const coarse = matchMedia("(pointer: coarse)").matches;
    const size = M.x.length > 1200 ? 5 : 7;
    const points = { type: "scatter", mode: "markers", x: M.x, y: M.y, hoverinfo: "none", marker: { size, opacity: opacity(), line: { width: 0 }, ...markerColours() } };
    const at = Math.max(selected, 0);
    const ring = { type: "scatter", mode: "markers", x: [M.x[at]], y: [M.y[at]], hoverinfo: "skip", marker: { size: 16, color: "rgba(0,0,0,0)", line: { width: 3, color: css("--ink") } } };
    return Plotly.react("map", [points, ring], plain({ dragmode: coarse ? false : "pan", annotations: medians() }), CONFIG);
  }
  const opacity = () => M.cluster.map((j, i) => ((only === null || j === only) && (!matches || matches.has(i)) ? 0.85 : 0.08));

  // Rows whose words have the text in them, on the map; Enter goes from one to the next.
  let matches = null;
  function search(text) {
    const wanted = text.trim().toLowerCase();
    matches = wanted ? new Set(M.row.map((_, i) => i).filter((i) => `${M.row[i]} ${brief(i)}`.toLowerCase().includes(wanted))) : null;
    $("search-found").textContent = matches ? `${matches.size.toLocaleString("en")} of ${M.row.length.toLocaleString("en")} rows on the map` : "";
    Plotly.restyle("map", { "marker.opacity": [opacity()] }, [0]);
  }

  function nextMatch() {
    if (!matches || !matches.size) return;
    const all = [...matches];
    select(all.find((i) => i > selected) ?? all[0]);
  }

  function tip(event) {
    const i = event.points[0].pointIndex, box = $("tip");
    const words = brief(i);
    box.replaceChildren(
      el("div", {}, dot(M.cluster[i]), `Row ${M.row[i]} · cluster ${M.cluster[i]} · ${chance(M.probability[i])}`),
      words ? el("div", { class: "note" }, words.length > 220 ? words.slice(0, 219) + "…" : words) : "",
      D.pictures ? picture(D.pictures.thumbnails, i, 84, `Row ${M.row[i]}`) : "",
    );
    box.dataset.row = M.row[i];
    box.hidden = false;
    const x = event.event ? event.event.clientX : 0, y = event.event ? event.event.clientY : 0;
    box.style.left = Math.max(4, Math.min(x + 16, innerWidth - box.offsetWidth - 8)) + "px";
    box.style.top = Math.max(4, Math.min(y + 16, innerHeight - box.offsetHeight - 8)) + "px";
  }

  function step(dx, dy) {
    const i = Math.max(selected, 0);
    let best = -1, least = Infinity;
    for (let at = 0; at < M.x.length; at++) {
      const ahead = (M.x[at] - M.x[i]) * dx + (M.y[at] - M.y[i]) * dy;
      const aside = Math.abs((M.x[at] - M.x[i]) * dy) + Math.abs((M.y[at] - M.y[i]) * dx);
      const far = ahead + 2 * aside;
      if (ahead > 1e-9 && aside <= 2 * ahead && far < least && (only === null || M.cluster[at] === only)) [best, least] = [at, far];
    }
    if (best >= 0) select(best);
  }

  // ---- sections

  function summary() {
    $("sentence").textContent = D.summary.sentence;
    const notes = D.summary.warnings.map((text) => el("p", { class: "warning", role: "alert" }, "⚠ " + text));
    if (!notes.length) notes.push(el("p", { class: "fine" }, D.summary.repaired ? `✓ No warnings; ${D.summary.repaired} dead centres were repaired in training.` : "✓ No warnings: no empty cluster, no collapse, nothing to repair."));
    $("warnings").replaceChildren(...notes);
    $("tiles").replaceChildren(...D.summary.tiles.map(([name, value, note]) => el("div", { class: "tile" }, el("span", {}, name), el("b", {}, value), el("span", {}, note))));
    const some = M.row.length < D.total ? `${M.row.length.toLocaleString("en")} of ${D.total.toLocaleString("en")} rows, evenly drawn, by ${M.layout} of the embedding.` : `All ${D.total.toLocaleString("en")} rows, by ${M.layout} of the embedding.`;
    $("map-note").textContent = `${some} Point at a row to see it; choose it to see why it is where it is.`;
    $("footer").textContent = `diffclust ${D.version}. This page is one file and asks the network for nothing.`;
    $("model-sentence").textContent = D.summary.model;
  }

  function chips() {
    const make = (j) => el("button", { type: "button", class: "chip", "aria-pressed": "false", "data-cluster": j, onclick: () => {
      only = only === j ? null : j;
      for (const chip of $("chips").children) chip.setAttribute("aria-pressed", String(Number(chip.dataset.cluster) === only));
      Plotly.restyle("map", { "marker.opacity": [opacity()] }, [0]);
    } }, dot(j), `${j} · ${D.clusters.find((c) => c.cluster === j).size.toLocaleString("en")}`);
    $("chips").replaceChildren(...D.clusters.map((c) => make(c.cluster)));
  }

  function cards() {
    const P = D.pictures, galleries = P ? "gallery" : "gallery texts";
    $("cards").replaceChildren(...D.clusters.map((c) => {
      const j = c.cluster;
      const head = el("div", { class: "head" }, P && P.centers ? picture(P.centers, j, 72, `Decoded centre of cluster ${j}`) : null,
        el("div", {}, el("h3", {}, dot(j), `Cluster ${j}`), el("div", { class: "note" }, `${c.size.toLocaleString("en")} rows, ${percent(c.share)}`)));
      const facts = [];
      if (c.tightness !== null) facts.push(`${c.tightness < 1 ? "tighter" : "looser"} than average (${format(c.tightness)})`);
      if (c.neighbours.length) facts.push(`nearest: ${c.neighbours.map(([l, away]) => `${l} (at ${format(away)})`).join(", ")}`);
      const card = el("article", { class: "card", "data-cluster": j }, head, el("p", { class: "note" }, facts.join("; ") || "no rows"));
      if (c.columns.length) card.append(el("h4", {}, "Set apart by (the whole table in brackets)"), el("ul", {}, ...c.columns.map((fact) => el("li", {}, fact))));
      else if (c.features.length) card.append(el("h4", {}, D.kind === "table" ? "Set apart by (its mean; standard deviations from the others)" : "Set apart by (standard deviations from the others)"), bars(c.features.map(([name, away, mean]) => [name, away, D.kind === "table" ? format(mean) : ""])));
      if (c.typical.length) card.append(el("h4", {}, "Most typical"), el("div", { class: galleries }, ...c.typical.slice(0, P ? 6 : 3).map((i) => rowButton(i))));
      if (c.doubtful.length) card.append(el("h4", {}, "Most doubtful"), el("div", { class: galleries }, ...c.doubtful.slice(0, P ? 6 : 3).map((i) => rowButton(i, M.rival[i] === null ? "" : `or ${M.rival[i]}?`))));
      return card;
    }));
    $("doubtful").className = galleries;
    $("doubtful").replaceChildren(...D.doubtful.map((i) => rowButton(i, M.rival[i] === null ? "" : `${M.cluster[i]} or ${M.rival[i]}?`)));
  }

  // ---- trust

  function verdict(T) {
    const said = [];
    if (!T.runs) said.push("These rows were clustered once: restarts (n_init) would show whether other random numbers give the same clusters.");
    else said.push(`${T.runs.count} restarts agree with an adjusted Rand index of ${T.runs.agreement.toFixed(2)} on average (1: the same clusters, 0: chance). ${T.runs.wander ? `${T.runs.wander.toLocaleString("en")} rows are elsewhere in more than half of the other runs.` : "No row is elsewhere in more than half of the other runs."}`);
    if (T.kmeans) {
      const [ours, plain] = T.kmeans.neighbours, apart = ours - plain;
      const words = Math.abs(apart) < 0.02 ? "about as many" : apart > 0 ? "fewer" : "more";
      said.push(`k-means on the same rows keeps ${words} neighbours together (${plain.toFixed(2)} against ${ours.toFixed(2)}); as it looks at the rows alone, scores on the rows favour it.`);
    }
    return said.join(" ");
  }

  function trust() {
    const T = D.trust, tables = [];
    $("trust-note").textContent = verdict(T);
    if (T.kmeans) {
      const two = (pair) => pair.map((value) => (value === null ? "–" : value.toFixed(2)));
      tables.push(el("div", { class: "scroll" }, grid(["without labels", "this model", "k-means"], [
        ["neighbours together (1: all, 0: chance)", ...two(T.kmeans.neighbours)], ["silhouette of the rows", ...two(T.kmeans.silhouette)],
        ["agreement of the two (Rand)", T.kmeans.agreement.toFixed(2), ""], ["rows measured", T.kmeans.rows.toLocaleString("en"), ""]])));
    }
    if (T.runs) tables.push(el("div", { class: "scroll" }, grid(["cluster", "its rows stay, over the other runs"], D.clusters.map((c) => [c.cluster, T.runs.clusters[c.cluster] === null ? "–" : percent(T.runs.clusters[c.cluster])]))));
    $("trust").replaceChildren(...tables);
    $("wander-title").hidden = !D.wandering.length;
    $("wandering").className = D.pictures ? "gallery" : "gallery texts";
    $("wandering").replaceChildren(...D.wandering.map(([i, share]) => rowButton(i, `in ${Math.round(share * T.runs.others)} of ${T.runs.others} runs`)));
  }

  let player = 0;
  function training() {
    if (!D.frames.length) return;
    $("training-section").hidden = false;
    $("epoch-split").classList.toggle("single", !D.frames.some((frame) => frame.centers));
    const slider = $("epoch");
    slider.max = D.frames.length - 1;
    slider.value = slider.max;
    slider.addEventListener("input", () => showFrame(Number(slider.value)));
    $("play").addEventListener("click", () => {
      if (player) return stop();
      $("play").textContent = "❚❚ Stop";
      if (slider.value === slider.max) slider.value = -1;
      const next = () => {
        slider.value = Number(slider.value) + 1;
        showFrame(Number(slider.value));
        if (Number(slider.value) >= Number(slider.max)) stop();
      };
      player = setInterval(next, 900);
    });
    const stop = () => { clearInterval(player); player = 0; $("play").textContent = "▶ Play"; };
    showFrame(D.frames.length - 1);
  }

  function showFrame(at) {
    const F = D.frames[at];
    const words = `${F.phase}, epoch ${F.epoch}`;
    $("epoch-label").textContent = words;
    $("epoch").setAttribute("aria-valuetext", words);
    const terms = Object.entries(F.losses).map(([name, value]) => `${name} ${format(value)}`).join(", ");
    const moved = F.moved === undefined || F.moved === null ? "" : ` ${percent(F.moved)} of the watched rows changed cluster since the frame before.`;
    $("epoch-note").textContent = `Loss: ${terms}.${moved}` + (F.cluster ? " Stars are the centres." : " There are no centres yet; colours are the clusters to come.");
    const labels = F.cluster || F.later;
    const traces = [{ type: "scatter", mode: "markers", x: F.x, y: F.y, hoverinfo: "skip", marker: { size: 6, opacity: 0.8, color: labels ? labels.map(colour) : css("--quiet") } }];
    if (F.center_x) traces.push({ type: "scatter", mode: "markers+text", x: F.center_x, y: F.center_y, text: F.center_x.map((_, j) => String(j)), textposition: "top center", hoverinfo: "skip", marker: { symbol: "star", size: 15, color: F.center_x.map((_, j) => colour(j)), line: { width: 1.5, color: css("--ink") } } });
    Plotly.react("epoch-map", traces, plain({ dragmode: false }), { ...CONFIG, displayModeBar: false });
    const centers = F.centers ? Array.from({ length: F.centers.n }, (_, j) => figure(picture(F.centers, j, 84, `Centre of cluster ${j} in epoch ${F.epoch}`), `centre ${j}`)) : [];
    $("epoch-centers").dataset.frame = at;
    $("epoch-centers").replaceChildren(...centers);
  }

  function losses() {
    const phases = Object.keys(D.losses);
    const terms = [...new Set(phases.flatMap((phase) => Object.keys(D.losses[phase])))];
    const places = terms.map((term) => el("div", { class: "plot", role: "img", "aria-label": `${term} loss over the epochs` }));
    $("losses").replaceChildren(...places);
    $("loss-section").hidden = !terms.length;
    return Promise.all(terms.map((term, at) => {
      let start = 0;
      const traces = [];
      phases.forEach((phase, number) => {
        const values = D.losses[phase][term];
        if (values) traces.push({ type: "scatter", mode: values.length > 1 ? "lines" : "markers", name: phase, x: values.map((_, i) => start + i + 1), y: values, line: { width: 2, color: PALETTE[number] }, hovertemplate: "epoch %{x}: %{y:.4g}" });
        start += Math.max(...Object.values(D.losses[phase]).map((v) => v.length));
      });
      const axis = { gridcolor: css("--line"), zeroline: false, automargin: true };
      return Plotly.react(places[at], traces, plain({ margin: { l: 48, r: 12, t: 34, b: 34 }, title: { text: term, font: { size: 14 } }, xaxis: { ...axis, title: { text: "epoch", font: { size: 12 } } }, yaxis: axis, showlegend: traces.length > 1, legend: { x: 1, xanchor: "right", y: 1 }, dragmode: false }), { ...CONFIG, displayModeBar: false });
    }));
  }

  function truth() {
    if (!D.truth) return;
    $("truth-section").hidden = false;
    const names = { acc: ["accuracy", "by the best one-to-one naming"], nmi: ["NMI", "normalised mutual information"], ari: ["ARI", "adjusted Rand index"], purity: ["purity", "commonest class of each cluster"] };
    $("scores").replaceChildren(...Object.entries(D.truth.scores).map(([name, value]) => el("div", { class: "tile" }, el("span", {}, names[name][0]), el("b", {}, (100 * value).toFixed(1)), el("span", {}, names[name][1]))));
    if (D.truth.unlabelled) $("scores").after(el("p", { class: "note" }, `${D.truth.unlabelled.toLocaleString("en")} rows have no label: the scores and the table are of the others.`));
    const most = Math.max(...D.truth.table.flat(), 1);
    const head = el("tr", {}, el("th", { scope: "col" }, "class \\ cluster"), ...D.truth.clusters.map((j) => el("th", { scope: "col" }, String(j))));
    const lines = D.truth.table.map((line, i) => el("tr", {}, el("th", { scope: "row" }, D.truth.classes[i]), ...line.map((count) =>
      el("td", { style: { background: `color-mix(in srgb, var(--accent) ${Math.round((60 * count) / most)}%, var(--soft))` } }, count ? String(count) : ""))));
    $("confusion").replaceChildren(el("table", { class: "counts" }, el("thead", {}, head), el("tbody", {}, ...lines)));
  }

  function model() {
    $("parts").replaceChildren(grid(["part", "what it is", "what it is for", "numbers learnt"], D.model.parts.map((p) => [p.name, p.what, p.why, p.numbers.toLocaleString("en")])));
    const runs = D.model.runs;
    $("restarts").hidden = runs.length < 2;
    const columns = Object.keys(runs[0] || {}).filter((name) => name !== "chosen");
    $("runs").replaceChildren(grid([...columns.map((name) => name.replaceAll("_", " ")), ""], runs.map((run) => [...columns.map((name) => (name === "seed" ? run[name] : format(run[name]))), run.chosen ? "kept, by the label-free rule" : ""])));
    $("settings").replaceChildren(grid(["setting", "value", "default"], D.settings));
  }

  // ---- begin

  themes(redraw);
  function redraw() {
    drawMap();
    if (selected >= 0) select(selected, false);
    if (D.frames.length) showFrame(Number($("epoch").value));
    losses();
  }

  for (const section of document.querySelectorAll("main section:not(#summary-section)")) {
    if ((section.id === "training-section" && !D.frames.length) || (section.id === "truth-section" && !D.truth)) continue;
    $("nav").append(el("a", { href: "#" + section.id }, section.querySelector("h2").textContent));
  }
  const choices = [["cluster", "cluster"], ["probability", "probability"], ...(D.truth ? [["truth", "true label"]] : [])];
  $("colour-by").replaceChildren(...choices.map(([value, name]) => el("option", { value }, name)));
  $("colour-by").addEventListener("change", drawMap);
  $("row-number").max = D.total - 1;
  $("row-number").addEventListener("change", () => {
    const i = M.row.indexOf(Number($("row-number").value));
    if (i >= 0) select(i);
    else $("row-missing").textContent = "This row is not in the sample on the map.";
  });
  $("search").addEventListener("input", () => search($("search").value));
  $("search").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); nextMatch(); } });
  $("map").addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (way) { event.preventDefault(); step(...way); }
  });

  summary();
  chips();
  cards();
  trust();
  truth();
  model();
  const drawn = [drawMap()];
  $("map").on("plotly_hover", tip);
  $("map").on("plotly_unhover", () => { $("tip").hidden = true; });
  $("map").on("plotly_click", (event) => { if (event.points[0].curveNumber === 0) select(event.points[0].pointIndex); });
  select(D.doubtful.length ? D.doubtful[0] : 0);
  training();
  drawn.push(losses());
  Promise.all(drawn).then(() => { document.documentElement.dataset.ready = "yes"; });
})();
