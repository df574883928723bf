// The map: one row is chosen and explained; some are selected, by lasso, click or key, to be named or saved; filters
// leave the others pale.
"use strict";
const RowMap = (() => {
  const { $, data: D, PALETTE, css, rgb, el, draw, picture, downloadText, csv, saves } = Page;
  const { colour, dot, chance, cut, brief, label } = Rows;
  const M = D.map;
  const NAMES = 8; // on the map at most
  const DEEPEST = 0.22; // opacity of the innermost step; steps lie one on the other
  const count = (n) => n.toLocaleString("en");

  // ---- how figures look

  function plain(extra = {}) {
    const hidden = { visible: false, fixedrange: false };
    return {
      margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--quiet"), activecolor: css("--ink") }, plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      font: { color: css("--ink"), family: "system-ui, sans-serif" }, xaxis: hidden, yaxis: { ...hidden, scaleanchor: "x" }, ...extra,
    };
  }
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"]], scrollZoom: false };

  function saveFigure(place, figure, name, what) {
    saves(place, name, what, (format) => {
      const { width, height } = $(figure).getBoundingClientRect();
      const layout = { ...$(figure).layout, paper_bgcolor: css("--card"), title: undefined };
      return Plotly.toImage({ data: $(figure).data, layout }, { format, width: Math.max(width, 640), height: Math.max(height, 300), scale: 2 });
    });
  }

  // ---- what is shown

  let shaded = Boolean(M.density);
  const only = new Set(); // clusters; none: all of them
  let most = 1, wanted = "", matches = null;

  function isShown(i) {
    if (only.size && !only.has(M.cluster[i])) return false;
    if (most < 1 && M.probability[i] > most) return false;
    if (wanted.startsWith("truth:") && String(D.truth.label[i]) !== wanted.slice(6)) return false;
    if (wanted.startsWith("name:") && Names.row(M.row[i]) !== wanted.slice(5)) return false;
    return !matches || matches.has(i);
  }
  const opacity = () => M.row.map((_, i) => (isShown(i) ? (shaded ? 0.75 : 0.85) : 0.08));

  function filtered() {
    const n = M.row.filter((_, i) => isShown(i)).length;
    $("shown").textContent = n === M.row.length ? "" : `${count(n)} of ${count(M.row.length)} rows shown`;
    Plotly.restyle("map", { "marker.opacity": [opacity()] }, [0]);
    if (pictured) placePictures();
  }

  function chips() {
    const pressed = () => { for (const chip of $("chips").children) chip.setAttribute("aria-pressed", String(only.has(Number(chip.dataset.cluster)))); };
    const make = ({ cluster: j, size }) => el("button", { type: "button", class: "chip", "aria-pressed": "false", "data-cluster": j, onclick: () => {
      if (!only.delete(j)) only.add(j);
      pressed();
      filtered();
    } }, dot(j), `${cut(Names.short(j), 28)} · ${count(size)}`);
    $("chips").replaceChildren(...D.clusters.map(make));
    pressed();
  }

  // Labels that were given, and names that the reader gave.
  function labels() {
    const options = [el("option", { value: "" }, "any")];
    if (D.truth) {
      options.push(...D.truth.classes.map((name, at) => el("option", { value: `truth:${at}` }, cut(name, 40))));
      if (D.truth.unlabelled) options.push(el("option", { value: "truth:null" }, "none"));
    }
    options.push(...Names.rowNames().map((name) => el("option", { value: `name:${name}` }, `yours: ${cut(name, 40)}`)));
    $("label").replaceChildren(...options);
    $("label").value = wanted;
    if ($("label").value !== wanted) { $("label").value = wanted = ""; }
    $("label-filter").hidden = options.length < 2;
  }

  // Rows whose words have the text in them; Enter goes from one to the next.
  function search(text) {
    const words = text.trim().toLowerCase();
    matches = words ? new Set(M.row.map((_, i) => i).filter((i) => `${M.row[i]} ${brief(i)} ${Names.row(M.row[i])}`.toLowerCase().includes(words))) : null;
    $("search-found").textContent = matches ? `${count(matches.size)} of ${count(M.row.length)} rows on the map` : "";
    filtered();
  }

  function nextMatch() {
    if (!matches || !matches.size) return;
    const all = [...matches];
    select(all.find((i) => i > selected) ?? all[0]);
  }

  function showAll() {
    only.clear();
    [most, wanted, matches] = [1, "", null];
    $("search").value = $("search-found").textContent = "";
    $("label").value = "";
    $("most").value = 1;
    $("most-label").textContent = "1.00";
    chips();
    filtered();
  }

  // ---- one row, and several

  let selected = -1;
  function select(i, moves = true) {
    selected = i;
    $("panel").replaceChildren(...Rows.why(i));
    $("panel").dataset.row = M.row[i];
    $("row-number").value = M.row[i];
    $("row-missing").textContent = "";
    if (moves) Plotly.restyle("map", { x: [[M.x[i]]], y: [[M.y[i]]] }, [1]);
  }

  const chosen = new Set();
  function choose(rows, { add = false } = {}) {
    if (!add) chosen.clear();
    for (const i of rows) chosen.add(i);
    showChosen();
  }

  function toggle(i) {
    if (!chosen.delete(i)) chosen.add(i);
    showChosen();
  }

  function showChosen(redraw = true) {
    const rows = [...chosen].sort((a, b) => a - b), sizes = new Map();
    for (const i of rows) sizes.set(M.cluster[i], (sizes.get(M.cluster[i]) || 0) + 1);
    $("chosen").hidden = !rows.length;
    $("chosen-count").textContent = `${count(rows.length)} ${rows.length === 1 ? "row" : "rows"} selected`;
    $("chosen-of").textContent = [...sizes].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([j, n]) => `${count(n)} of ${Names.called(j)}`).join("; ");
    $("chosen-rows").className = D.pictures ? "gallery" : "gallery texts";
    $("chosen-rows").replaceChildren(...rows.slice(0, D.pictures ? 24 : 6).map((i) => Rows.button(i, Names.row(M.row[i]))));
    if (redraw) Plotly.restyle("map", { x: [rows.map((i) => M.x[i])], y: [rows.map((i) => M.y[i])] }, [2]);
  }

  function saveChosen() {
    const head = ["row", "cluster", "cluster_name", "name", "probability", ...(D.truth ? ["label"] : [])];
    const lines = [...chosen].sort((a, b) => a - b).map((i) => [M.row[i], M.cluster[i], Names.cluster(M.cluster[i]), Names.row(M.row[i]), M.probability[i], ...(D.truth ? [label(i)] : [])]);
    downloadText("selected.csv", csv([head, ...lines]), "text/csv");
  }

  function step(dx, dy) {
    const i = Math.max(selected, 0);
    let best = -1, least = Infinity;
    for (let at = 0; at < M.x.length; at++) {
      const ahead = (M.x[at] - M.x[i]) * dx + (M.y[at] - M.y[i]) * dy;
      const aside = Math.abs((M.x[at] - M.x[i]) * dy) + Math.abs((M.y[at] - M.y[i]) * dx);
      const far = ahead + 2 * aside;
      if (ahead > 1e-9 && aside <= 2 * ahead && far < least && isShown(at)) [best, least] = [at, far];
    }
    if (best >= 0) select(best);
  }

  function key(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (way) {
      if (event.shiftKey) chosen.add(selected);
      step(...way);
      if (event.shiftKey) choose([selected], { add: true });
    } else if (event.key === " " || event.key === "Enter") toggle(selected);
    else if (event.key.toLowerCase() === "a") chooseShown();
    else if (event.key === "Escape") choose([]);
    else return;
    event.preventDefault();
  }
  const chooseShown = () => choose(M.row.map((_, i) => i).filter(isShown));

  // ---- drawing

  function markerColours() {
    const by = $("colour-by").value;
    if (by === "probability" || by === "stability") return { color: M[by], colorscale: "Viridis", cmin: 0, cmax: 1, showscale: true, colorbar: { thickness: 10, len: 0.6, outlinewidth: 0 } };
    if (by === "cut") return { color: M.cluster.map((j) => colour(Trust.groups()[j])), showscale: false };
    const values = by === "truth" ? D.truth.label : M.cluster;
    const tone = by === "truth" && D.truth.classes.length > 10 ? (j) => `hsl(${(j * 137.508) % 360} 60% 50%)` : by === "truth" ? (j) => PALETTE[j] : colour;
    return { color: values.map((j) => (j === null ? css("--quiet") : tone(j))), showscale: false };
  }

  // A name or a number on each cluster, the largest first. Many names would hide the rows, so more than NAMES are left to
  // the list above the map; where two would overlap, the smaller cluster has its number, or nothing. Names that are the
  // same once they are cut have their number in front.
  function medians() {
    const span = (values) => Math.max(...values) - Math.min(...values) || 1, { clientWidth: width, clientHeight: height } = $("map");
    const unit = 1.17 * Math.max(span(M.x) / (width || 700), span(M.y) / (height || 600)); // a pixel in units of the map, which has a margin
    const font = D.k > 20 ? 12 : 15, pad = D.k > 20 ? 2 : 3, longest = Math.max(8, Math.min(24, Math.floor(width / 28))), placed = [];
    const named = D.clusters.filter(({ cluster: j }) => Names.cluster(j)).length <= NAMES;
    const short = (j) => cut(Names.cluster(j), longest), all = D.clusters.map(({ cluster }) => short(cluster));
    const called = (j) => (all.filter((other) => other === short(j)).length > 1 ? cut(`${j} ${Names.cluster(j)}`, longest) : short(j));
    const wide = (words) => unit * (0.6 * font * words.length + 2 * pad + 6), tall = unit * (1.4 * font + 2 * pad);
    for (const { cluster: j } of [...D.clusters].sort((a, b) => b.size - a.size)) {
      const mine = M.cluster.map((c, i) => (c === j ? i : -1)).filter((i) => i >= 0);
      if (!mine.length) continue;
      const middle = (values) => mine.map((i) => values[i]).sort((a, b) => a - b)[Math.floor(mine.length / 2)];
      const [x, y] = [middle(M.x), middle(M.y)];
      const isFree = (words) => placed.every((other) => Math.abs(other.x - x) > (wide(other.words) + wide(words)) / 2 || Math.abs(other.y - y) > tall);
      const words = [...(named && Names.cluster(j) ? [called(j)] : []), String(j)].find(isFree);
      if (words) placed.push({ j, x, y, words });
    }
    return placed.map(({ j, x, y, words }) => ({ x, y, text: escaped(words), showarrow: false, font: { size: font, color: css("--ink") }, bgcolor: css("--card"), bordercolor: colour(j), borderwidth: 2, borderpad: pad, opacity: 0.88 }));
  }
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); // plotly reads tags

  // Where most rows are, of all that the map is a sample of.
  function shading() {
    if (!shaded) return [];
    const { x: [x0, dx], y: [y0, dy], sparser, levels } = M.density, tone = rgb("--ink").join(",");
    const last = levels.length - 1, contours = { start: levels[0], end: levels[last], size: levels[1] - levels[0], coloring: "fill", showlines: false };
    const colorscale = [[0, `rgba(${tone},0)`], [1, `rgba(${tone},${DEEPEST})`]];
    return [{ type: "contour", x0, dx, y0, dy, z: sparser, contours, colorscale, autocontour: false, zmin: 0, zmax: 100, showscale: false, hoverinfo: "skip", line: { width: 0 } }];
  }

  let lasso = false;
  const coarse = matchMedia("(pointer: coarse)").matches;
  const dragmode = () => (lasso ? "lasso" : coarse ? false : "pan");

  function drawMap() {
    const size = shaded ? 4 : M.x.length > 1200 ? 5 : 7, at = Math.max(selected, 0), rows = [...chosen];
    const points = { type: "scatter", mode: "markers", x: M.x, y: M.y, hoverinfo: "none", marker: { size, opacity: opacity(), line: { width: 0 }, ...markerColours() } };
    const ring = { type: "scatter", mode: "markers", x: [M.x[at]], y: [M.y[at]], hoverinfo: "skip", marker: { size: 16, color: "rgba(0,0,0,0)", line: { width: 3, color: css("--ink") } } };
    const held = { type: "scatter", mode: "markers", x: rows.map((i) => M.x[i]), y: rows.map((i) => M.y[i]), hoverinfo: "skip", marker: { size: size + 3, color: "rgba(0,0,0,0)", opacity: 0.75, line: { width: 1, color: css("--ink") } } };
    return Plotly.react("map", [points, ring, held, ...shading()], plain({ dragmode: dragmode(), annotations: medians(), images: pictured ? $("map").layout.images : [] }), CONFIG);
  }

  // ---- pictures on the map: one in each cell of a grid, as many as there is room for

  const CELL = 38; // pixels
  let pictured = false, waiting = 0, turn = 0;
  const drawn = new Map();
  function pictureOf(i) {
    if (!drawn.has(i)) {
      const sprite = D.pictures.thumbnails, canvas = el("canvas");
      drawn.set(i, draw(canvas, sprite, i).then(() => {
        const framed = el("canvas", { width: 52, height: 52 }), pen = framed.getContext("2d");
        pen.imageSmoothingEnabled = false;
        pen.fillStyle = colour(M.cluster[i]);
        pen.fillRect(0, 0, 52, 52);
        const scale = 46 / Math.max(sprite.w, sprite.h), [w, h] = [sprite.w * scale, sprite.h * scale];
        pen.drawImage(canvas, (52 - w) / 2, (52 - h) / 2, w, h);
        return framed.toDataURL();
      }));
    }
    return drawn.get(i);
  }

  async function placePictures() {
    const mine = ++turn;
    const { xaxis, yaxis } = $("map").layout, box = $("map").getBoundingClientRect();
    const [left, right] = xaxis.range, [low, high] = yaxis.range, unit = (right - left) / box.width;
    const cells = new Map(), cell = CELL * unit;
    M.row.forEach((_, i) => {
      if (!pictured || !isShown(i) || M.x[i] < left || M.x[i] > right || M.y[i] < low || M.y[i] > high) return;
      const [column, line] = [Math.floor((M.x[i] - left) / cell), Math.floor((M.y[i] - low) / cell)], at = `${column},${line}`;
      if (!cells.has(at)) cells.set(at, { i, x: left + (column + 0.5) * cell, y: low + (line + 0.5) * cell });
    });
    const places = [...cells.values()], sources = await Promise.all(places.map(({ i }) => pictureOf(i)));
    if (mine !== turn) return; // another call came after this one
    const images = places.map(({ x, y }, at) => ({ source: sources[at], xref: "x", yref: "y", x, y, sizex: 0.92 * cell, sizey: 0.92 * cell, xanchor: "center", yanchor: "middle", layer: "above" }));
    Plotly.relayout("map", { images });
  }

  function zoomed(change) {
    if (!pictured || !Object.keys(change).some((name) => name.startsWith("xaxis") || name === "autosize")) return;
    clearTimeout(waiting);
    waiting = setTimeout(placePictures, 120);
  }

  function tip(event) {
    const i = event.points[0].pointIndex, box = $("tip"), words = brief(i);
    if (event.points[0].curveNumber !== 0) return;
    box.replaceChildren(
      el("div", {}, dot(M.cluster[i]), `Row ${M.row[i]} · ${Names.called(M.cluster[i])} · ${chance(M.probability[i])}`),
      words ? el("div", { class: "note" }, cut(words, 220)) : "",
      D.pictures ? picture(D.pictures.thumbnails, i, 84, `Row ${M.row[i]}`) : "",
    );
    box.dataset.row = M.row[i];
    box.hidden = false;
    const x = event.event ? event.event.clientX : 0, y = event.event ? event.event.clientY : 0;
    box.style.left = Math.max(4, Math.min(x + 16, innerWidth - box.offsetWidth - 8)) + "px";
    box.style.top = Math.max(4, Math.min(y + 16, innerHeight - box.offsetHeight - 8)) + "px";
  }

  // ---- begin

  function controls() {
    const ways = [["cluster", "cluster"], ["probability", "probability"], ...(M.stability ? [["stability", "stability over restarts"]] : []), ...(D.trust.tree ? [["cut", "cut of the tree"]] : []), ...(D.truth ? [["truth", "true label"]] : [])];
    $("colour-by").replaceChildren(...ways.map(([value, name]) => el("option", { value }, name)));
    $("colour-by").addEventListener("change", drawMap);
    $("row-number").max = D.total - 1;
    $("row-number").addEventListener("change", () => {
      const i = M.row.indexOf(Number($("row-number").value));
      if (i >= 0) select(i);
      else $("row-missing").textContent = "This row is not in the sample on the map.";
    });
    $("search").addEventListener("input", () => search($("search").value));
    $("search").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); nextMatch(); } });
    $("most").addEventListener("input", () => { most = Number($("most").value); $("most-label").textContent = most.toFixed(2); filtered(); });
    $("label").addEventListener("change", () => { wanted = $("label").value; filtered(); });
    $("show-all").addEventListener("click", showAll);
    $("lasso").addEventListener("click", () => {
      lasso = !lasso;
      $("lasso").setAttribute("aria-pressed", String(lasso));
      Plotly.relayout("map", { dragmode: dragmode() });
    });
    $("thumbnails").hidden = !D.pictures;
    $("thumbnails").addEventListener("click", () => {
      pictured = !pictured;
      $("thumbnails").setAttribute("aria-pressed", String(pictured));
      placePictures();
    });
    $("density").hidden = !M.density;
    $("density").addEventListener("click", () => {
      shaded = !shaded;
      $("density").setAttribute("aria-pressed", String(shaded));
      drawMap();
    });
    $("choose-shown").addEventListener("click", chooseShown);
    $("chosen-clear").addEventListener("click", () => { choose([]); $("map").focus({ preventScroll: true }); });
    $("chosen-save").addEventListener("click", saveChosen);
    $("chosen-form").addEventListener("submit", (event) => {
      event.preventDefault();
      Names.nameRows([...chosen].map((i) => M.row[i]), $("chosen-name").value);
      $("chosen-name").value = "";
    });
    $("map").addEventListener("keydown", key);
  }

  let adds = false;
  function listen() {
    const map = $("map");
    map.addEventListener("mousedown", (event) => { adds = event.shiftKey; }, true);
    map.on("plotly_hover", tip);
    map.on("plotly_unhover", () => { $("tip").hidden = true; });
    map.on("plotly_click", (event) => {
      const at = event.points[0];
      if (at.curveNumber !== 0) return;
      select(at.pointIndex);
      if (adds) toggle(at.pointIndex);
    });
    map.on("plotly_selected", (event) => {
      if (!event || !event.lassoPoints) return;
      choose(event.points.filter((at) => at.curveNumber === 0).map((at) => at.pointIndex).filter(isShown), { add: adds });
      Plotly.update("map", { selectedpoints: null }, { selections: [] });
    });
    map.on("plotly_relayout", zoomed);
    saveFigure("save-map", "map", "map", "the map");
  }

  function begin() {
    controls();
    chips();
    labels();
    const done = drawMap();
    listen();
    select(D.doubtful.length ? D.doubtful[0] : 0);
    Names.onChange(() => { chips(); labels(); drawMap(); select(selected, false); showChosen(false); filtered(); });
    return done;
  }

  function redraw() {
    drawn.clear();
    drawMap();
    if (selected >= 0) select(selected, false);
  }

  return { begin, redraw, draw: drawMap, select, plain, CONFIG, saveFigure };
})();
