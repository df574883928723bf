// What the pages share: elements, numbers in words, pictures, the theme. Whatever comes from the data is put on a page as
// text, never as HTML.
"use strict";
const Page = (() => {
  const $ = (id) => document.getElementById(id);
  const PALETTE = ["#3b76b5", "#e8862e", "#4a9d5b", "#d1495b", "#7d5ba6", "#9a6b4b", "#d977a8", "#7a7f87", "#a9a12f", "#2ba6b5"];
  const hue = (j, k) => (k <= 10 ? PALETTE[j] : `hsl(${(j * 137.508) % 360} ${55 + (j % 3) * 10}% ${44 + (j % 4) * 6}%)`);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const format = (v) => (v === null || v === undefined ? "–" : Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(Number(v.toPrecision(4))));
  const percent = (share) => (100 * share).toFixed(1) + " %";
  const signed = (v) => (v > 0 ? "+" : v < 0 ? "−" : "") + format(Math.abs(v));

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") Object.assign(node.style, value);
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  // ---- pictures

  const sheets = new Map();
  function sheet(sprite) {
    if (!sheets.has(sprite)) {
      sheets.set(sprite, new Promise((ready) => {
        const image = new Image();
        image.onload = () => ready(image);
        image.src = "data:image/png;base64," + sprite.png;
      }));
    }
    return sheets.get(sprite);
  }

  function draw(canvas, sprite, i, heat) {
    canvas.width = sprite.w;
    canvas.height = sprite.h;
    canvas.dataset.drawn = "";
    return sheet(sprite).then((image) => {
      const pen = canvas.getContext("2d", { willReadFrequently: Boolean(heat) });
      const left = (i % sprite.columns) * sprite.w, top = Math.floor(i / sprite.columns) * sprite.h;
      pen.drawImage(image, left, top, sprite.w, sprite.h, 0, 0, sprite.w, sprite.h);
      if (heat) tint(pen, sprite.w, sprite.h);
      canvas.dataset.drawn = "yes";
    });
  }

  function rgb(name) {
    const hex = css(name).slice(1);
    return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  }

  function tint(pen, w, h) {
    const pixels = pen.getImageData(0, 0, w, h);
    const [good, bad, back] = [rgb("--for"), rgb("--against"), rgb("--soft")];
    for (let at = 0; at < pixels.data.length; at += 4) {
      const weight = (pixels.data[at] - 128) / 120;
      const full = weight >= 0 ? good : bad;
      for (let c = 0; c < 3; c++) pixels.data[at + c] = back[c] + Math.min(1, Math.abs(weight)) * (full[c] - back[c]);
    }
    pen.putImageData(pixels, 0, 0);
  }

  function picture(sprite, i, size, label, heat) {
    const canvas = el("canvas", { role: "img", "aria-label": label });
    const scale = size / Math.max(sprite.w, sprite.h);
    canvas.style.width = Math.round(sprite.w * scale) + "px";
    canvas.style.height = Math.round(sprite.h * scale) + "px";
    draw(canvas, sprite, i, heat);
    return canvas;
  }

  const figure = (canvas, words) => el("figure", {}, canvas, el("figcaption", {}, words));
  const spot = (tone) => el("span", { class: "dot", style: { background: tone }, "aria-hidden": "true" });

  function grid(head, lines) {
    const row = (cells, tag) => el("tr", {}, ...cells.map((cell) => el(tag, {}, String(cell))));
    return el("table", { class: "plain" }, el("thead", {}, row(head, "th")), el("tbody", {}, ...lines.map((line) => row(line, "td"))));
  }

  // A dark and a light theme: the reader's own at first; `redraw` after each change.
  function themes(redraw) {
    const wish = matchMedia("(prefers-color-scheme: dark)");
    const set = (dark) => { document.documentElement.dataset.theme = dark ? "dark" : "light"; };
    set(wish.matches);
    wish.addEventListener("change", () => { set(wish.matches); redraw(); });
    $("theme").addEventListener("click", () => { set(document.documentElement.dataset.theme !== "dark"); redraw(); });
  }

  return { $, PALETTE, hue, css, format, percent, signed, el, draw, picture, figure, spot, grid, themes };
})();
