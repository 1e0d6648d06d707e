// Pages that keep themselves up to date (hx-trigger="every ...") stay still while somebody reads or works on them.
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

  // Another answer than the same page means that the session is over: show that instead of an empty page.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!region(event) || event.detail.xhr.responseText.includes('id="console"')) return;
    event.detail.shouldSwap = false;
    window.location.reload();
  });
})();
