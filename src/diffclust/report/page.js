// The report: its summary, how the clusters formed, truth, losses, the model; and the beginning of everything.
"use strict";
(() => {
  const { $, data: D, PALETTE, css, format, percent, el, picture, figure, grid, themes, contents } = Page;
  const { colour } = Rows;
  const { plain, CONFIG } = RowMap;
  const M = D.map;

  function summary() {
    $("sentence").textContent = D.summary.sentence;
    const notes = D.summary.warnings.map((text) => el("p", { class: "warning", role: "alert" }, "⚠ " + text));
    if (!notes.length) notes.push(el("p", { class: "fine" }, D.summary.repaired ? `✓ No warnings; ${D.summary.repaired} dead centres were repaired in training.` : "✓ No warnings: no empty cluster, no collapse, nothing to repair."));
    if (D.summary.fallback) notes.push(el("p", { class: "note" }, D.summary.fallback));
    for (const what of D.summary.unchecked) notes.push(el("p", { class: "note" }, `Not checked: ${what}.`));
    $("warnings").replaceChildren(...notes);
    $("tiles").replaceChildren(...D.summary.tiles.map(([name, value, note]) => el("div", { class: "tile" }, el("span", {}, name), el("b", {}, value), el("span", {}, note))));
    const some = M.row.length < D.total ? `${M.row.length.toLocaleString("en")} of ${D.total.toLocaleString("en")} rows, typical and doubtful ones and evenly spaced others, by ${M.layout} of the embedding.` : `All ${D.total.toLocaleString("en")} rows, by ${M.layout} of the embedding.`;
    const shares = M.density ? M.density.levels.map((level) => 100 - level) : [];
    const shade = M.density ? ` The shading shows where most of all rows are: its steps hold ${shares.slice(0, -1).join(", ")} and ${shares.at(-1)} % of them.` : "";
    $("map-note").textContent = `${some}${shade} Point at a row to see it; choose it to see why it is in its cluster.`;
    $("model-sentence").textContent = D.summary.model;
  }

  // Numbers beside stars are read where they lie on rows.
  const HALO = () => Array(4).fill(`0 0 3px ${css("--card")}`).join(", ");

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
    const moved = F.moved === undefined || F.moved === null ? "" : ` ${percent(F.moved)} of the watched rows changed cluster since the previous frame.`;
    $("epoch-note").textContent = `Loss: ${terms}.${moved}` + (F.cluster ? " Stars are the centres." : " There are no centres yet; colours are the clusters to come.");
    const labels = F.cluster || F.later;
    const traces = [{ type: "scatter", mode: "markers", x: F.x, y: F.y, hoverinfo: "skip", marker: { size: 6, opacity: 0.8, color: labels ? labels.map(colour) : css("--quiet") } }];
    if (F.center_x) traces.push({ type: "scatter", mode: "markers+text", x: F.center_x, y: F.center_y, text: F.center_x.map((_, j) => String(j)), textposition: "top center", textfont: { shadow: HALO() }, hoverinfo: "skip", marker: { symbol: "star", size: 15, color: F.center_x.map((_, j) => colour(j)), line: { width: 1.5, color: css("--ink") } } });
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
      return Plotly.react(places[at], traces, plain({ margin: { l: 48, r: 12, t: 34, b: 34 }, title: { text: term, font: { size: 14 } }, xaxis: { ...axis, title: { text: "epoch", standoff: 6, font: { size: 12 } } }, yaxis: axis, showlegend: traces.length > 1, legend: { x: 1, xanchor: "right", y: 1 }, dragmode: false }), { ...CONFIG, displayModeBar: false });
    }));
  }

  function truth() {
    if (!D.truth) return;
    $("truth-section").hidden = false;
    const names = { acc: ["accuracy", "by the best one-to-one naming"], nmi: ["NMI", "normalised mutual information"], ari: ["ARI", "adjusted Rand index"], purity: ["purity", "commonest class of each cluster"] };
    $("scores").replaceChildren(...Object.entries(D.truth.scores).map(([name, value]) => el("div", { class: "tile" }, el("span", {}, names[name][0]), el("b", {}, (100 * value).toFixed(1)), el("span", {}, names[name][1]))));
    if (D.truth.unlabelled) $("scores").after(el("p", { class: "note" }, `${D.truth.unlabelled.toLocaleString("en")} rows have no label and are left out of the scores and the table.`));
    const most = Math.max(...D.truth.table.flat(), 1);
    const head = el("tr", {}, el("th", { scope: "col" }, "class \\ cluster"), ...D.truth.clusters.map((j) => el("th", { scope: "col" }, String(j))));
    const lines = D.truth.table.map((line, i) => el("tr", {}, el("th", { scope: "row" }, D.truth.classes[i]), ...line.map((count) =>
      el("td", { style: { background: `color-mix(in srgb, var(--accent) ${Math.round((36 * count) / most)}%, var(--soft))` } }, count ? String(count) : ""))));
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

  themes(() => {
    RowMap.redraw();
    Trust.redraw();
    if (D.frames.length) showFrame(Number($("epoch").value));
    losses();
  });

  summary();
  truth();
  model();
  Clusters.begin();
  const drawn = [RowMap.begin(), Trust.begin()];
  training();
  drawn.push(losses());
  contents();
  Promise.all(drawn).then(() => { document.documentElement.dataset.ready = "yes"; });
})();
