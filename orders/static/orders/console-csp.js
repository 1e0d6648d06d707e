// Lets the console's theme run on Alpine's build for a Content-Security-Policy without 'unsafe-eval'. That build reads one simple
// expression an attribute, and reaches no global name: the theme's functions are registered by their names, and the few attributes
// with more than that call the functions here.
(() => {
  "use strict";
  const REGISTERED = ["searchForm", "searchDropdown", "searchCommand"];
  const REPLACED = [
    [/^sidebarDesktopOpen = !sidebarDesktopOpen;/, "sidebarDesktopOpen = !sidebarDesktopOpen"],
    [/^activeTab && [^]*window\.location/, "tabAddress()"],
    [/^if \(!\$event\.metaKey && !\$event\.ctrlKey\) selectItem\((\w+), false\)$/, "enter($event, $1)"],
  ];
  const functions = {
    tabAddress() {
      const tab = this.activeTab && this.activeTab !== "general" ? `#${this.activeTab}` : "";
      return window.location.pathname + window.location.search + tab;
    },
    enter(event, history) {
      if (!event.metaKey && !event.ctrlKey) this.selectItem(history, false);
    },
  };

  function readable(element) {
    for (const { name, value } of element.attributes) {
      if (!name.startsWith("x-")) continue;
      for (const [pattern, call] of REPLACED) {
        const found = pattern.exec(value.trim());
        if (found) element.setAttribute(name, call.replace("$1", found[1]));
      }
    }
  }

  document.addEventListener("alpine:init", () => {
    for (const name of REGISTERED) window.Alpine.data(name, window[name]);
    window.Alpine.data("theme", (...args) => ({ ...window.theme(...args), ...functions }));
    // What the theme writes at the body: the tab of the address, or else the first one, and whether the sidebar was open.
    const first = (document.body.getAttribute("x-init") || "").match(/\|\| '([\w-]*)'/);
    window.Alpine.data("page", () => ({
      activeTab: first ? window.getCurrentTab() || first[1] : "",
      sidebarMobileOpen: false,
      sidebarDesktopOpen: window.Alpine.$persist(true).as("sidebarDesktopOpen"),
    }));
    document.body.setAttribute("x-data", "page");
    document.body.removeAttribute("x-init");
    document.querySelectorAll("body *").forEach(readable);
  });
})();
