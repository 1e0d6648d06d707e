// Makes or uses a passkey before a form with data-passkey is sent, and puts the browser's answer into the form.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  const credential = form.elements[form.dataset.credential || "credential"];
  if (!form.dataset.passkey || credential.value) return;
  event.preventDefault();
  const problem = document.querySelector("[data-passkey-problem]");
  try {
    const options = form.dataset.options ? await asked(form) : JSON.parse(form.querySelector("script").textContent);
    credential.value = JSON.stringify(await webauthnJSON[form.dataset.passkey](options));
  } catch (error) {
    if (problem) problem.hidden = false;
    return;
  }
  form.submit();
});

async function asked(form) {
  const answer = await fetch(form.dataset.options, { method: "POST", headers: { "X-CSRFToken": form.elements.csrfmiddlewaretoken.value } });
  if (!answer.ok) throw new Error(answer.status);
  return answer.json();
}
