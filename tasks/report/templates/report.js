"use strict";
(() => {
  const root = document.documentElement;
  const each = (selector, act, from = document) => from.querySelectorAll(selector).forEach(act);

  // Theme: the system's, or the one chosen here.
  const theme = document.getElementById("theme");
  const themes = ["system", "light", "dark"];
  const kept = {
    get: () => { try { return localStorage.getItem("supmer-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("supmer-theme", value); } catch { /* a file may not remember */ } },
  };
  const show = (name) => {
    if (name === "system") root.removeAttribute("data-theme");
    else root.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
  };
  let chosen = themes.includes(kept.get()) ? kept.get() : "system";
  show(chosen);
  theme.hidden = false;
  theme.addEventListener("click", () => {
    chosen = themes[(themes.indexOf(chosen) + 1) % themes.length];
    kept.set(chosen);
    show(chosen);
  });

  // Tables: a click on a heading sorts by it; cells without a value stay last.
  const key = (row, column) => row.cells[column].dataset.value ?? "";
  const compare = (numeric) => (a, b) => numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
  each("table", (table) => {
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const numeric = head.classList.contains("number");
      const first = numeric ? "descending" : "ascending";
      const second = numeric ? "ascending" : "descending";
      const order = before === first ? second : first;
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", order);
      const body = table.tBodies[0];
      const rows = [...body.rows];
      const filled = rows.filter((row) => key(row, column) !== "");
      const empty = rows.filter((row) => key(row, column) === "");
      const by = compare(numeric);
      filled.sort((a, b) => (order === "ascending" ? 1 : -1) * by(key(a, column), key(b, column)));
      rows.forEach((row) => row.classList.remove("break"));
      body.append(...filled, ...empty);
    }));
  });

  // Copying: a command, or a table as tab-separated text.
  const toClipboard = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const cells = (row) => [...row.cells].flatMap((cell) =>
    [cell.textContent.trim().replace(/\s+/g, " "), ...Array(cell.colSpan - 1).fill("")]);
  const asText = (table) => [...table.rows].map((row) => cells(row).join("\t")).join("\n");
  each("button.copy", (button) => button.addEventListener("click", async () => {
    const table = button.dataset.table && document.getElementById(button.dataset.table).querySelector("table");
    await toClipboard(table ? asText(table) : button.dataset.copy);
    const label = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1200);
  }));

  // Plots: the values under the pointer, or at the place the arrow keys move to.
  const tip = document.getElementById("tip");
  each("svg[data-plot]", (svg) => {
    const plot = JSON.parse(svg.dataset.plot);
    const cross = svg.querySelector(".cross");
    let at = -1;
    const hide = () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); };
    const tell = (place, left, top) => {
      at = place;
      cross.setAttribute("x1", plot.x[place]);
      cross.setAttribute("x2", plot.x[place]);
      cross.setAttribute("visibility", "visible");
      const title = document.createElement("b");
      title.textContent = plot.at[place];
      tip.replaceChildren(title);
      plot.series.forEach((series) => {
        if (series.values[place] === null) return;
        const line = document.createElement("div");
        const name = document.createElement("span");
        name.className = series.style;
        name.textContent = series.name;
        line.append(name, ` ${series.values[place]}`);
        tip.append(line);
      });
      tip.hidden = false;
      tip.style.left = `${Math.max(4, Math.min(left + 14, innerWidth - tip.offsetWidth - 8))}px`;
      tip.style.top = `${Math.max(4, Math.min(top + 14, innerHeight - tip.offsetHeight - 8))}px`;
    };
    const nearest = (x) => plot.x.reduce((best, here, place) =>
      Math.abs(here - x) < Math.abs(plot.x[best] - x) ? place : best, 0);
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      tell(nearest(x), event.clientX, event.clientY);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); }); // a tap stays
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!move) return;
      event.preventDefault();
      const place = Math.max(0, Math.min(plot.x.length - 1, at + move));
      const box = svg.getBoundingClientRect();
      tell(place, box.left + plot.x[place] * box.width / svg.viewBox.baseVal.width, box.top + box.height / 3);
    });
  });
})();
