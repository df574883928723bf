// Can it be trusted: restarts, k-means beside it, how the number of clusters was found, and their tree.
"use strict";
const Trust = (() => {
  const { $, data: D, PALETTE, css, format, percent, el, grid } = Page;
  const { plain, CONFIG, saveFigure } = RowMap;
  const T = D.trust;

  function verdict() {
    const said = [];
    if (!T.runs) said.push("There was only one run: restarts (n_init) would show whether other random numbers give the same clusters.");
    else said.push(`${T.runs.count} restarts agree with an adjusted Rand index of ${T.runs.agreement.toFixed(2)} on average (1: the same clusters, 0: chance). ${T.runs.wander ? `${T.runs.wander.toLocaleString("en")} rows are in another cluster in more than half of the other runs.` : "No row is in another cluster in more than half of the other runs."}`);
    if (T.kmeans) {
      const [ours, plainly] = T.kmeans.neighbours, apart = ours - plainly;
      const words = Math.abs(apart) < 0.02 ? "about as many" : apart > 0 ? "fewer" : "more";
      said.push(`k-means on the same rows keeps ${words} neighbours together (${plainly.toFixed(2)} against ${ours.toFixed(2)}); scores on the rows favour k-means, which uses the rows alone.`);
    }
    return said.join(" ");
  }

  function steadiness() {
    const bar = (share) => el("div", { class: "share" }, el("i", { style: { width: `${60 * share}%`, background: share >= 0.75 ? "var(--for)" : share >= 0.5 ? "var(--warn)" : "var(--against)" } }), el("span", {}, share.toFixed(2)));
    const lines = D.clusters.map(({ cluster: j }) => el("tr", {}, el("td", {}, Names.short(j)), el("td", { class: "wide" }, bar(T.runs.clusters[j]))));
    const head = el("tr", {}, el("th", { scope: "col" }, "cluster"), el("th", { scope: "col" }, "found again in the other runs (1: the same rows)"));
    return el("table", { class: "plain", id: "steadiness" }, el("thead", {}, head), el("tbody", {}, ...lines));
  }

  function tables() {
    const found = [];
    if (T.kmeans) {
      const two = (pair) => pair.map((value) => (value === null ? "–" : value.toFixed(2)));
      found.push(grid(["without labels", "this model", "k-means"], [
        ["neighbours together (1: all, 0: chance)", ...two(T.kmeans.neighbours)], ["silhouette of the rows", ...two(T.kmeans.silhouette)],
        ["agreement of the two (Rand)", T.kmeans.agreement.toFixed(2), ""], ["rows measured", T.kmeans.rows.toLocaleString("en"), ""]]));
    }
    if (T.runs) found.push(steadiness());
    $("trust").replaceChildren(...found.map((table) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.id ? "How stable each cluster is" : "Comparison with k-means" }, table)));
  }

  // ---- the number of clusters

  function number() {
    const N = T.number;
    if (!N) return Promise.resolve();
    $("number-part").hidden = false;
    if (!N.candidates.length) {
      $("number-note").textContent = "There were too few rows to estimate the number: they form one cluster.";
      $("number-plot").hidden = true;
      return Promise.resolve();
    }
    const best = N.scores.indexOf(Math.max(...N.scores)), taken = N.candidates.indexOf(N.n_clusters), at = taken < 0 ? best : taken;
    const why = at === best ? "agree on it best" : `agree on it nearly as well as on ${N.candidates[best]}, and of such numbers the smallest is taken`;
    $("number-note").textContent = N.n_clusters === 1 ?
      `One cluster: at the best number, ${N.candidates[best]}, the silhouette is ${N.silhouettes[best].toFixed(2)} and the deepest valley between clusters has ${percent(N.valley)} of their density, which is too little to tell several apart.` :
      `${N.n_clusters} clusters: two networks, each trained on one half of the rows, ${why}. There the silhouette is ${N.silhouettes[at].toFixed(2)}, and ${percent(N.agreements[at])} of the rows are in the same cluster for both.`;
    $("number-table").replaceChildren(grid(["clusters", "silhouette", "agreement", "score"], N.candidates.map((k, at) => [k, N.silhouettes[at].toFixed(3), N.agreements[at].toFixed(3), N.scores[at].toFixed(3)])));
    const axis = { gridcolor: css("--line"), zeroline: false, automargin: true };
    const line = (name, y, at) => ({ type: "scatter", mode: "lines+markers", name, x: N.candidates, y, line: { width: at ? 1.5 : 3, color: PALETTE[at] }, marker: { size: at ? 4 : 7 }, hovertemplate: `%{x} clusters: ${name} %{y:.3f}<extra></extra>` });
    const mark = { type: "line", x0: N.candidates[at], x1: N.candidates[at], yref: "paper", y0: 0, y1: 1, line: { color: css("--quiet"), dash: "dot", width: 1.5 } };
    const done = Plotly.react("number-plot", [line("score", N.scores, 0), line("silhouette", N.silhouettes, 1), line("agreement", N.agreements, 2)],
      plain({ margin: { l: 44, r: 12, t: 12, b: 40 }, xaxis: { ...axis, title: { text: "clusters", standoff: 6, font: { size: 12 } } }, yaxis: axis, showlegend: true, legend: { orientation: "h", y: 1.12 }, shapes: [mark], dragmode: false }), { ...CONFIG, displayModeBar: false });
    saveFigure("save-number", "number-plot", "number-of-clusters", "the number of clusters");
    return done;
  }

  // ---- the tree

  let cutAt = D.k;
  // The group of each cluster, by its first cluster, where the tree has `cutAt` of them.
  function groups(k = cutAt) {
    const of = new Map(Array.from({ length: D.k }, (_, j) => [j, [j]]));
    T.tree.slice(0, D.k - k).forEach(([a, b], step) => {
      of.set(D.k + step, [...of.get(a), ...of.get(b)]);
      of.delete(a);
      of.delete(b);
    });
    const found = Array(D.k).fill(0);
    for (const members of of.values()) for (const j of members) found[j] = Math.min(...members);
    return found;
  }

  // Where each node stands: leaves side by side in the order of the tree, a join between what it joins.
  function nodes() {
    const at = new Map();
    let next = 0;
    const place = (node) => {
      if (node < D.k) at.set(node, { x: next++, y: 0, first: node });
      else {
        const [a, b, height] = T.tree[node - D.k];
        const [left, right] = [place(a), place(b)];
        at.set(node, { x: (left.x + right.x) / 2, y: height, first: left.first });
      }
      return at.get(node);
    };
    place(2 * D.k - 2);
    return at;
  }

  function tree() {
    if (!T.tree) return Promise.resolve();
    $("tree-part").hidden = false;
    const at = nodes(), group = groups(), called = (node) => (node < D.k ? Names.short(node) : `join ${node - D.k + 1}`);
    const traces = T.tree.map(([a, b, height, rows], step) => {
      const [l, r] = [at.get(a), at.get(b)], inside = step < D.k - cutAt;
      return { type: "scatter", mode: "lines", x: [l.x, l.x, r.x, r.x], y: [l.y, height, height, r.y], line: { width: 2, color: inside ? Rows.colour(group[l.first]) : css("--quiet") }, hoveron: "points", text: Array(4).fill(`height ${format(height)}, ${rows.toLocaleString("en")} rows`), hoverinfo: "text" };
    });
    const leaves = Array.from({ length: D.k }, (_, j) => j).sort((a, b) => at.get(a).x - at.get(b).x);
    traces.push({ type: "scatter", mode: "markers", x: leaves.map((j) => at.get(j).x), y: leaves.map(() => 0), cliponaxis: false, marker: { size: 9, color: leaves.map((j) => Rows.colour(group[j])) }, text: leaves.map((j) => Names.called(j)), hoverinfo: "text" });
    const words = leaves.map((j) => Rows.cut(Names.short(j), 18).replaceAll("<", "&lt;"));
    const done = Plotly.react("tree-plot", traces, plain({ margin: { l: 48, r: 12, t: 10, b: 30 }, xaxis: { showgrid: false, zeroline: false, tickvals: leaves.map((_, x) => x), ticktext: words, autotickangles: [0, 90], ticks: "outside", ticklen: 7, tickcolor: "rgba(0,0,0,0)", automargin: true, fixedrange: true }, yaxis: { gridcolor: css("--line"), zeroline: false, automargin: true, fixedrange: true, rangemode: "tozero", title: { text: "height", font: { size: 12 } } }, dragmode: false }), { ...CONFIG, displayModeBar: false });
    $("tree-table").replaceChildren(grid(["join", "of", "and", "height", "rows"], T.tree.map(([a, b, height, rows], step) => [step + 1, called(a), called(b), format(height), rows.toLocaleString("en")])));
    const n = `${cutAt} ${cutAt === 1 ? "cluster" : "clusters"}`;
    $("cut-label").textContent = n;
    $("cut").setAttribute("aria-valuetext", n);
    saveFigure("save-tree", "tree-plot", "tree", "the tree");
    return done;
  }

  function begin() {
    $("trust-note").textContent = verdict();
    tables();
    $("wander-part").hidden = !D.wandering.length;
    $("wandering").className = D.pictures ? "gallery" : "gallery texts";
    $("wandering").replaceChildren(...D.wandering.map((i) => Rows.button(i, Rows.stays(i))));
    $("cut").max = $("cut").value = D.k;
    $("cut").addEventListener("input", () => {
      cutAt = Number($("cut").value);
      tree();
      if ($("colour-by").value === "cut") RowMap.draw();
    });
    Names.onChange(() => { tables(); tree(); });
    return redraw();
  }

  const redraw = () => Promise.all([number(), tree()]);
  return { begin, redraw, groups };
})();
