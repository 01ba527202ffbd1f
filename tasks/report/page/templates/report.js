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

  // Tables that do not fit say so.
  const say = (box) => {
    const down = box.scrollHeight > box.clientHeight + 2;
    const aside = box.scrollWidth > box.clientWidth + 2;
    let hint = box.previousElementSibling;
    if (!hint || !hint.classList.contains("more")) {
      hint = document.createElement("p");
      hint.className = "more";
      box.before(hint);
    }
    hint.hidden = !(down || aside);
    const ways = [aside ? "sideways for more columns \u2192" : "", down ? "down for more rows \u2193" : ""];
    hint.textContent = `Scroll ${ways.filter(Boolean).join(", ")}`;
  };
  const watch = new ResizeObserver((entries) => entries.forEach((entry) => say(entry.target)));
  each(".scroll", (box) => watch.observe(box));

  // Plots: the values under the pointer, or at the place the arrow keys move to.
  const tip = document.getElementById("tip");
  const place_tip = (left, top) => {
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(left + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(top + 14, innerHeight - tip.offsetHeight - 8))}px`;
  };
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
      place_tip(left, top);
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

  // Maps: the circle under the pointer, or the next one by the arrow keys.
  each("svg[data-map]", (svg) => {
    const places = JSON.parse(svg.dataset.map);
    const mark = svg.querySelector(".ring-mark");
    let at = -1;
    const hide = () => { tip.hidden = true; mark.setAttribute("visibility", "hidden"); };
    const tell = (number, left, top) => {
      at = number;
      const place = places[number];
      mark.setAttribute("cx", place.x);
      mark.setAttribute("cy", place.y);
      mark.setAttribute("r", place.r + 1.5);
      mark.setAttribute("visibility", "visible");
      const title = document.createElement("b");
      title.textContent = place.name;
      const about = document.createElement("div");
      about.textContent = place.about;
      tip.replaceChildren(title, about);
      place_tip(left, top);
    };
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      const away = places.map((place) => Math.hypot(place.x - x, place.y - y) - place.r);
      const best = away.reduce((least, here, number) => here < away[least] ? number : least, 0);
      if (away[best] < 8) tell(best, event.clientX, event.clientY);
      else hide();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!move) return;
      event.preventDefault();
      const number = Math.max(0, Math.min(places.length - 1, at + move));
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      tell(number, box.left + places[number].x * scale, box.top + places[number].y * scale);
    });
  });
})();
