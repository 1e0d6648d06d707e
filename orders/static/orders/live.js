// Updates the order page when server-sent events do not: htmx polls every two seconds until the stream sends an event.
(function () {
  "use strict";
  var POLL_MS = 2000;
  var QUIET_MS = 30000; // while the stream is silent the page polls this often, in case the stream is broken
  var live = document.querySelector("[data-live]");
  if (!live) return;

  var heardAt = 0; // time of the stream's last event; 0 = no stream
  var askedAt = 0; // time of the last poll

  if (!("EventSource" in window)) live.removeAttribute("sse-connect");
  live.addEventListener("htmx:sseMessage", function () { heardAt = Date.now(); });
  live.addEventListener("htmx:sseError", function () { heardAt = 0; });

  var timer = setInterval(function () {
    if (live.querySelector("[data-final]")) {
      clearInterval(timer);
      return;
    }
    var now = Date.now();
    if (document.hidden || now - Math.max(heardAt, askedAt) < (heardAt ? QUIET_MS : POLL_MS)) return;
    askedAt = now;
    live.dispatchEvent(new Event("poll"));
  }, 500);
})();
