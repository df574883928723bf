// A row in words and pictures: on a button, and in the panel that says why it is where it is.
"use strict";
const Rows = (() => {
  const { $, data: D, hue, css, format, percent, signed, el, picture, figure, spot } = Page;
  const M = D.map;
  const colour = (j) => hue(j, D.k);
  const dot = (j) => spot(colour(j));
  const chance = (p) => (p >= 0.0005 ? p.toFixed(3) : p > 0 ? "less than 0.001" : "0");
  const short = (name, most) => (name.length <= most ? name : name.slice(0, Math.ceil(most / 2)) + "…" + name.slice(1 - Math.floor(most / 2)));
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const breakable = (name) => name.split(/(?<=[_/.-])/).flatMap((part) => [part, el("wbr")]);

  function brief(i) {
    if (M.caption && (D.kind !== "table" || !M.features)) return M.caption[i];
    if (!M.features) return "";
    const values = M.feature[i].slice(0, 4).map((f, at) => `${short(M.features[f], 36)} ${format(M.feature_value[i][at])}`).join(", ");
    return M.caption ? `${M.caption[i]}: ${values}` : values;
  }

  const label = (i) => (D.truth ? (D.truth.label[i] === null ? "none" : D.truth.classes[D.truth.label[i]]) : null);

  // In how many of the other runs a row is in the same cluster.
  const stays = (i) => `${Math.round(M.stability[i] * (D.trust.runs.count - 1))} of ${D.trust.runs.count - 1}`;

  function button(i, note) {
    const said = `Row ${M.row[i]}, cluster ${M.cluster[i]}, probability ${chance(M.probability[i])}`;
    const go = () => { RowMap.select(i); $("map-section").scrollIntoView(); $("map").focus({ preventScroll: true }); };
    if (D.pictures) {
      const small = note ? el("small", {}, note) : null;
      return el("button", { type: "button", class: "thumb", title: M.caption ? `${said}: ${M.caption[i]}` : said, "aria-label": note ? `${said}, ${note}` : said, onclick: go }, picture(D.pictures.thumbnails, i, 42, said), small);
    }
    const words = brief(i);
    return el("button", { type: "button", class: "thumb text", title: said, onclick: go },
      el("small", {}, `Row ${M.row[i]}${note ? ", " + note : ""}`), cut(words, 150));
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

  // A text with the words marked that speak for its cluster, and against it.
  function marked(text, weights) {
    if (!weights.size) return [text];
    const escaped = [...weights.keys()].sort((a, b) => b.length - a.length).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const parts = text.split(new RegExp(`(?<![\\p{L}\\p{N}_])(${escaped.join("|")})(?![\\p{L}\\p{N}_])`, "giu"));
    return parts.map((part, at) => (at % 2 ? el("mark", { class: weights.get(part.toLowerCase()) >= 0 ? "for" : "against" }, part) : part));
  }

  function wordWeights(i) {
    if (D.kind !== "text" || !M.features) return new Map();
    return new Map(M.feature[i].map((f, at) => [M.features[f].toLowerCase(), M.feature_weight[i][at]]).filter(([word, weight]) => weight !== 0 && word.length < 60));
  }

  function strip(i, j, l) {
    const P = D.pictures;
    const box = el("div", { class: "strip" }, figure(picture(P.thumbnails, i, 96, `Row ${M.row[i]}`), "the row"));
    if (P.heat) box.append(figure(picture(P.heat, i, 96, "Heat map", true), "pixels for this cluster (green) and against it (red)"));
    if (P.centers) {
      box.append(figure(picture(P.centers, j, 96, `Centre of cluster ${j}`), `centre of ${j}`));
      if (l !== null) box.append(figure(picture(P.centers, l, 96, `Centre of cluster ${l}`), `centre of ${l}, the runner-up`));
    }
    return box;
  }

  function why(i) {
    const j = M.cluster[i], l = M.rival[i], own = Names.row(M.row[i]);
    const parts = [
      el("h3", {}, dot(j), `Row ${M.row[i]} is in ${Names.called(j)}`),
      el("p", {}, l === null ? "There is no other cluster." :
        `Probability ${chance(M.probability[i])}; the runner-up is ${Names.called(l)} with ${chance(M.rival_probability[i])}. It leads by a margin of ${format(M.margin[i])}.`),
    ];
    if (D.truth) parts.push(el("p", { class: "note" }, `True label: ${label(i)}`));
    if (own) parts.push(el("p", { class: "note" }, `Your name: ${own}`));
    if (M.stability) parts.push(el("p", { class: "note" }, `It is in the same cluster in ${stays(i)} other ${D.trust.runs.count === 2 ? "run" : "runs"}.`));
    if (M.caption && D.kind === "text") parts.push(el("div", { class: "quote", tabindex: "0", role: "group", "aria-label": "Text of the row" }, ...marked(M.caption[i], wordWeights(i))));
    if (M.caption && D.kind !== "text") parts.push(el("p", { class: "note" }, M.caption[i]));
    if (D.pictures) parts.push(strip(i, j, l));
    if (M.features && l !== null) {
      parts.push(el("h4", {}, "The features that matter most"));
      const value = (at) => (D.kind === "text" ? "" : format(M.feature_value[i][at]));
      parts.push(bars(M.feature[i].map((f, at) => [M.features[f], M.feature_weight[i][at], value(at)]).filter(([, weight]) => weight !== 0)));
      if (M.error[i] > 0) parts.push(el("p", { class: "note" }, `By integrated gradients, against ${D.baseline}; completeness error ${percent(M.error[i])}.`));
    } else if (D.pictures && D.pictures.heat && M.error[i] > 0) {
      parts.push(el("p", { class: "note" }, `Heat map by integrated gradients, against ${D.baseline}; completeness error ${percent(M.error[i])}.`));
    }
    if (l !== null) {
      parts.push(el("h4", {}, M.exact ? "Exact contributions to the margin" : "Contributions to the margin, by integrated gradients"));
      if (!M.of_inputs) parts.push(el("p", { class: "note" }, `${M.n_parts > 1 ? `z0 to z${M.n_parts - 1} are` : "z0 is"} the network's embedding of the row; each speaks for cluster ${j} (green) or for ${l} (red).`));
      const lines = M.part[i].map((p, at) => [M.parts[p], M.part_value[i][at]]);
      if (M.n_parts > lines.length) lines.push([`${M.n_parts - lines.length} ${M.n_parts - lines.length === 1 ? "other" : "others"}`, M.part_rest[i]]);
      lines.push(["bias", M.bias[i]]);
      parts.push(bars(lines, ["margin", M.margin[i]]));
    }
    return parts;
  }

  return { colour, dot, chance, cut, brief, label, stays, button, bars, why, css };
})();
