// What the pages share: elements, numbers in words, pictures, files, the theme. Whatever comes from the data is put on a page as
// text, never as HTML.
"use strict";
const Page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const PALETTE = ["#3b76b5", "#e8862e", "#4a9d5b", "#d1495b", "#7d5ba6", "#9a6b4b", "#d977a8", "#7a7f87", "#a9a12f", "#2ba6b5"];
  const hue = (j, k) => (k <= 10 ? PALETTE[j] : `hsl(${(j * 137.508) % 360} ${55 + (j % 3) * 10}% ${44 + (j % 4) * 6}%)`);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const format = (v) => (typeof v === "string" ? v : v === null || v === undefined ? "–" : Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(Number(v.toPrecision(4))));
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

  const SVG = "http://www.w3.org/2000/svg";
  function svg(tag, attributes, ...children) {
    const node = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  // ---- files

  function download(name, url) {
    const link = el("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
  }

  function downloadText(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    download(name, url);
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  const cell = (value) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const csv = (lines) => lines.map((line) => line.map(cell).join(",") + "\r\n").join("");

  // Two buttons that save a figure; `drawn` gives it as a data URL, for "png" or "svg".
  function saves(place, name, what, drawn) {
    $(place).replaceChildren(...["png", "svg"].map((format) => el("button", {
      type: "button", "aria-label": `Save ${what} as ${format.toUpperCase()}`, onclick: () => drawn(format).then((url) => download(`${name}.${format}`, url)),
    }, format.toUpperCase())));
  }

  // An SVG of the page as a picture of its own: with the styles that it has here.
  function drawnSvg(node, format) {
    const copy = node.cloneNode(true), { width, height } = node.getBoundingClientRect();
    const from = [node, ...node.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
    from.forEach((each, i) => {
      const style = getComputedStyle(each);
      for (const name of ["fill", "opacity", "font-family", "font-size", "font-weight"]) to[i].style.setProperty(name, style.getPropertyValue(name));
    });
    copy.setAttribute("xmlns", SVG);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.style.background = css("--card");
    const url = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
    if (format === "svg") return Promise.resolve(url);
    return new Promise((ready) => {
      const image = new Image(), canvas = el("canvas", { width: Math.ceil(2 * width), height: Math.ceil(2 * height) });
      image.onload = () => { canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height); ready(canvas.toDataURL()); };
      image.src = url;
    });
  }

  function contents() {
    for (const section of document.querySelectorAll("main section:not(#summary-section):not([hidden])")) {
      $("nav").append(el("a", { href: "#" + section.id }, section.querySelector("h2").textContent));
    }
    $("footer").textContent = `diffclust ${data.version}. This page is a single file and loads nothing from the internet.`;
  }

  // A dark and a light theme: the reader's own at first; `redraw` after each change.
  function themes(redraw) {
    const wish = matchMedia("(prefers-color-scheme: dark)");
    const set = (dark) => { document.documentElement.dataset.theme = dark ? "dark" : "light"; };
    set(wish.matches);
    wish.addEventListener("change", () => { set(wish.matches); redraw(); });
    $("theme").addEventListener("click", () => { set(document.documentElement.dataset.theme !== "dark"); redraw(); });
  }

  return { $, data, PALETTE, hue, css, rgb, format, percent, signed, el, svg, draw, picture, figure, spot, grid, themes, downloadText, csv, saves, drawnSvg, contents };
})();
