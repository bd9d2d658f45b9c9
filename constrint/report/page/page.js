"use strict";
(() => {
  const root = document.documentElement;
  const said = document.getElementById("said");
  const say = (text) => { said.textContent = text; };

  // Colours are names of the style's variables, so that a theme is a matter of the style alone.
  const isColour = /(^|[a-z])color$|^colorscale$/;
  const variable = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const coloured = (value, is) => {
    if (typeof value === "string") return is && value.startsWith("--") ? variable(value) : value;
    if (Array.isArray(value)) return value.map((part) => coloured(part, is));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, coloured(part, is || isColour.test(key))]));
  };

  const usual = () => ({
    autosize: true,
    dragmode: false,
    hovermode: "closest",
    margin: { l: 8, r: 12, t: 12, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--muted"), activecolor: variable("--ink") },
    font: { family: "system-ui, sans-serif", size: root.clientWidth < 500 ? 11 : 13, color: variable("--ink") },
    hoverlabel: {
      align: "left", bgcolor: variable("--paper"), bordercolor: variable("--ink"),
      font: { color: variable("--ink"), size: root.clientWidth < 500 ? 11 : 13 },
    },
  });
  const config = {
    responsive: true, displaylogo: false, showTips: false, showLink: false,
    modeBarButtons: [["toImage"]], toImageButtonOptions: { format: "svg" }, locale: "en-US",
  };

  // Plotly's script and the figures are packed: gzip in base 85, with "," for "<" and "." for "&".
  const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%.()*+-;,=>?@^_`{|}~";
  const unpacked = async (id) => {
    const text = document.getElementById(id).textContent;
    const value = new Uint8Array(128);
    for (let at = 0; at < digits.length; at += 1) value[digits.charCodeAt(at)] = at;
    const bytes = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
    for (let at = 0; at < text.length; at += 5) {
      let word = 0;
      for (let i = at; i < at + 5; i += 1) word = word * 85 + (i < text.length ? value[text.charCodeAt(i)] : 84);
      bytes.setUint32(4 * (at / 5), word);
    }
    const length = bytes.byteLength - ((5 - (text.length % 5)) % 5);
    const stream = new Blob([bytes.buffer.slice(0, length)]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const ready = (async () => {
    const script = document.createElement("script");
    script.textContent = await unpacked("plotly");
    document.head.append(script);
    const all = JSON.parse(await unpacked("plots"));
    // On a page of several GPUs, what is folded away is packed as well; the template has escaped its texts.
    for (const place of document.querySelectorAll("[data-later]")) place.innerHTML = all[place.dataset.later].later;
    return all;
  })();
  ready.catch(() => {
    const note = document.createElement("p");
    note.className = "note";
    const rest = document.querySelector("[data-later]") ? "" : "; the tables hold the same";
    note.textContent = `This browser cannot draw the figures (it is from before 2023)${rest}.`;
    document.getElementById("main").prepend(note);
  });

  const draw = async (plot) => {
    plot.dataset.drawn = "wait";
    const { data, layout } = coloured((await ready)[plot.id], false);
    await window.Plotly.react(plot, data, { ...usual(), ...layout }, config);
    plot.dataset.drawn = "yes";
  };
  const plots = [...document.querySelectorAll(".plot")];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "600px" });
  plots.forEach((plot) => seen.observe(plot));
  const again = () => plots.filter((plot) => plot.dataset.drawn).forEach(draw);
  window.addEventListener("beforeprint", () => plots.filter((plot) => !plot.dataset.drawn).forEach(draw));

  const toggle = document.getElementById("theme");
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const shown = () => {
    toggle.textContent = isDark() ? "light" : "dark";
    toggle.setAttribute("aria-label", `change to the ${toggle.textContent} theme`);
    again();
  };
  toggle.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; shown(); });
  prefersDark.addEventListener("change", shown);
  shown();

  // Numbers sort as numbers, texts as texts; what is empty comes last either way.
  const sort = (head) => {
    const table = head.closest("table");
    const body = table.tBodies[0];
    const column = [...head.parentNode.children].indexOf(head);
    const is_up = head.getAttribute("aria-sort") !== "ascending";
    const rows = [...body.rows];
    const isNumber = head.classList.contains("number");
    // A cell has `data-v` where its text is rounded.
    const value = (row) => {
      const cell = row.children[column];
      const text = cell.textContent.trim();
      if (text === "-") return "";
      return cell.dataset.v ?? (isNumber ? text.replaceAll(",", "") : text);
    };
    rows.sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = isNumber ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
      return is_up ? order : -order;
    });
    body.append(...rows);
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", is_up ? "ascending" : "descending");
    say(`sorted by ${head.textContent.trim()}, ${is_up ? "ascending" : "descending"}`);
  };

  const copied = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* a page without the right to */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const head = button.closest("th");
    if (head) { sort(head); return; }
    if (!button.classList.contains("copy")) return;
    const isDone = await copied(button.dataset.copy ?? button.previousElementSibling.textContent);
    button.textContent = isDone ? "copied" : "select it";
    say(isDone ? "copied" : "it could not be copied: select the text");
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
})();
