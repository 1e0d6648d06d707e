// Pages that update themselves (hx-trigger="every ...") do not reload while the operator selects text or works on them.
(() => {
  "use strict";
  const region = (event) => (event.detail.target && event.detail.target.id === "console" ? event.detail.target : null);

  document.addEventListener("htmx:beforeRequest", (event) => {
    const console_ = region(event);
    if (!console_) return;
    const selection = document.getSelection();
    const busy =
      document.hidden ||
      console_.querySelector("details[open]") ||
      console_.contains(document.activeElement) ||
      (selection && !selection.isCollapsed && console_.contains(selection.anchorNode));
    if (busy) event.preventDefault();
  });

  // The signs of help that Django's permission boxes make have a name, and a role that takes one.
  window.addEventListener("load", () => setTimeout(() => {
    for (const sign of document.querySelectorAll(".help-tooltip[aria-label]:not([role])")) sign.setAttribute("role", "img");
  }));

  // If the answer is not the same page, the session has ended: reload to show the sign-in page, not an empty one.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!region(event) || event.detail.xhr.responseText.includes('id="console"')) return;
    event.detail.shouldSwap = false;
    window.location.reload();
  });
})();
