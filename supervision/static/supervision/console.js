// Pages that update themselves (hx-trigger="every ...") do not reload while the operator selects text or works on them,
// and never once the operator has typed or chosen something that is not sent yet.
(() => {
  "use strict";
  const region = (event) => (event.detail.target && event.detail.target.id === "console" ? event.detail.target : null);
  const isChanged = (field) =>
    field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked
      : field.options ? [...field.options].some((option) => option.selected !== option.defaultSelected) && field.selectedIndex > 0
      : field.value !== field.defaultValue;
  const isBusy = (console_) => {
    const selection = document.getSelection();
    return (
      document.hidden ||
      console_.querySelector("details[open]") ||
      console_.contains(document.activeElement) ||
      [...console_.querySelectorAll("input, select, textarea")].some(isChanged) ||
      (selection && !selection.isCollapsed && console_.contains(selection.anchorNode))
    );
  };

  document.addEventListener("htmx:beforeRequest", (event) => {
    const console_ = region(event);
    if (console_ && isBusy(console_)) event.preventDefault();
  });

  // The signs of help that Django's permission boxes make have a name, and a role that takes one.
  window.addEventListener("load", () => setTimeout(() => {
    for (const sign of document.querySelectorAll(".help-tooltip[aria-label]:not([role])")) sign.setAttribute("role", "img");
  }));

  // If the answer is not the same page, the session has ended: reload to show the sign-in page, not an empty one.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const console_ = region(event);
    if (!console_) return;
    const isSamePage = event.detail.xhr.responseText.includes('id="console"');
    if (isSamePage && !isBusy(console_)) return;
    event.detail.shouldSwap = false;  // the operator may have begun to type while the answer was on its way
    if (!isSamePage) window.location.reload();
  });
})();
