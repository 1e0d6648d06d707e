// Lists of orders that stay current without a reload, and the keys for what is done a hundred times a day. Without this file the
// pages work the same: they are reloaded, and everything is reached with Tab and Enter.
(() => {
  "use strict";
  const EVERY_MS = 10000;
  const rowsOf = (root) => [...root.querySelectorAll("#result_list tbody tr.data-row")];
  const idOf = (row) => row.querySelector("input.action-select")?.value || row.querySelector("th a")?.getAttribute("href");

  // --- Live ----------------------------------------------------------------------------------------------------------

  function busy(list) {
    const selection = document.getSelection();
    const selects = list.querySelector("input.action-select:checked");
    return document.hidden || selects || (selection && !selection.isCollapsed && list.contains(selection.anchorNode));
  }

  // Rows that stay keep their element, so that the focus and the theme's handlers stay with them.
  function renew(list, page) {
    const now = page.getElementById("sc-list");
    if (!list.querySelector("tbody") || !now.querySelector("tbody")) {  // it was empty, or it is now
      if (list.className === now.className) return;
      list.className = now.className;
      list.replaceChildren(...[...now.childNodes].map((node) => document.importNode(node, true)));
      return;
    }
    const body = list.querySelector("tbody"), known = new Map(rowsOf(list).map((row) => [idOf(row), row]));
    const fresh = rowsOf(page), strangers = fresh.some((row) => !known.has(idOf(row)));
    const rows = fresh.map((row) => {
      const mine = known.get(idOf(row));
      if (!mine) return document.importNode(row, true);
      [...row.cells].forEach((cell, place) => {
        if (mine.cells[place] && mine.cells[place].innerHTML !== cell.innerHTML && !mine.cells[place].contains(document.activeElement))
          mine.cells[place].innerHTML = cell.innerHTML;
      });
      return mine;
    });
    const focused = document.activeElement;
    if (rows.some((row, place) => body.rows[place] !== row) || rows.length !== body.rows.length) body.replaceChildren(...rows);
    if (focused !== document.activeElement && document.contains(focused)) focused.focus({ preventScroll: true });
    const parent = list.closest(".result-list-wrapper");
    if (strangers && parent && window.Actions) window.Actions(parent.querySelectorAll("tr input.action-select"), { parent });
  }

  function live() {
    const list = document.getElementById("sc-list"), line = document.getElementById("sc-live");
    if (!list || !line) return;
    const told = line.querySelector("span"), button = line.querySelector("button");
    let stopped = false;
    line.hidden = false;
    button.addEventListener("click", () => {
      stopped = !stopped;
      button.textContent = stopped ? button.dataset.resume : button.dataset.pause;
    });
    setInterval(async () => {
      if (stopped || busy(list)) return;
      try {
        const answer = await fetch(location.href, { headers: { "X-Requested-With": "fetch" }, redirect: "manual" });
        if (!answer.ok) throw new Error(answer.status);
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (busy(list) || stopped) return;
        renew(list, page);
        told.textContent = `${line.dataset.at} ${new Date().toISOString().slice(11, 19)} UTC`;
      } catch {
        told.textContent = line.dataset.trouble;  // the session has ended, or the server cannot be reached
      }
    }, Number(line.dataset.every) || EVERY_MS);
  }

  // --- Keys ----------------------------------------------------------------------------------------------------------

  const off = () => localStorage.getItem("sc-keys") === "off";
  const linkOf = (row) => row?.querySelector("th a");

  function step(by) {
    const rows = rowsOf(document), here = rows.indexOf(document.activeElement?.closest("tr.data-row"));
    linkOf(rows[here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(here + by, 0), rows.length - 1)])?.focus();
  }

  const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    o: () => linkOf(document.activeElement?.closest("tr.data-row"))?.click(),
    x: () => document.activeElement?.closest("tr.data-row")?.querySelector("input.action-select")?.click(),
    a: () => document.querySelector("#changelist-actions select[name=action]")?.focus(),
    v: () => document.querySelector(".sc-verbs a, .sc-verbs button")?.focus(),
    u: () => [...document.querySelectorAll("#header-inner a[href]")].filter((link) => location.pathname.startsWith(link.pathname) && link.pathname !== location.pathname).pop()?.click(),
  };

  const searching = () => document.getElementById("search-input-command")?.offsetParent;  // the theme's dialog, Control+K, is open

  document.addEventListener("keydown", (event) => {
    const at = event.target, dialog = document.getElementById("sc-keys");
    if (searching() || event.ctrlKey || event.metaKey || event.altKey || at.isContentEditable) return;
    if (at.matches?.("textarea, select, input:not([type=checkbox], [type=radio])")) return;
    if (event.key === "?" && dialog) {
      event.preventDefault();
      dialog.open ? dialog.close() : dialog.showModal();
    } else if (KEYS[event.key] && !off() && !dialog?.open) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    live();
    const use = document.getElementById("sc-keys-used");
    if (!use) return;
    use.checked = !off();
    use.addEventListener("change", () => localStorage.setItem("sc-keys", use.checked ? "on" : "off"));
    document.getElementById("sc-keys-open")?.addEventListener("click", () => document.getElementById("sc-keys").showModal());
  });
})();
