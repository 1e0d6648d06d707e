// Keeps the order page fresh when server-sent events do not: htmx asks every two seconds until the stream speaks.
(function () {
  "use strict";
  var POLL_MS = 2000;
  var QUIET_MS = 30000; // a stream that silently died is noticed by asking once in a while
  var live = document.querySelector("[data-live]");
  if (!live) return;

  var heardAt = 0; // when the stream last said something; 0 = not streaming
  var askedAt = 0;

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
