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

  // If the answer is not the same page, the session has ended: reload to show the sign-in page, not an empty one.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!region(event) || event.detail.xhr.responseText.includes('id="console"')) return;
    event.detail.shouldSwap = false;
    window.location.reload();
  });
})();
