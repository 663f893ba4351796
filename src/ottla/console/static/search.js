// While a search is read: says how far it is, shows the first matches, and a button ends it; the page then shows what was
// found until then. The server makes the HTML of records, with everything escaped.
import { addLocalTimes } from "./times.js";

const form = document.querySelector("form[data-search]");
const bar = document.getElementById("search-progress");
const text = document.getElementById("search-text");
const button = document.getElementById("search-stop");
const list = document.getElementById("search-found");
const address = new URL(location.href);
if (address.searchParams.has("run")) {
  address.searchParams.delete("run");
  history.replaceState(null, "", address);
}

function begin(run) {
  bar.hidden = false;
  text.textContent = "Reading…";
  const timer = setInterval(async () => {
    const answer = await fetch(`/searches/${run}`);
    if (answer.ok) {
      const found = await answer.json();
      const [scanned, matches] = [found.scanned, found.matches].map((each) => BigInt(each).toLocaleString("en"));
      text.textContent = `Reading: ${scanned} records in ${found.seconds} s, ${matches} found`;
      if (found.rows.length > list.childElementCount) {
        list.innerHTML = found.rows.join("");
        list.hidden = false;
        addLocalTimes(list);
      }
    }
  }, 300);
  button.onclick = () => fetch(`/searches/${run}/stop`, { method: "POST" });
  addEventListener("pageshow", () => {
    clearInterval(timer);
    bar.hidden = true;
    list.hidden = true;
  });
}

form.addEventListener("submit", () => {
  const run = document.createElement("input");
  run.type = "hidden";
  run.name = "run";
  run.value = crypto.getRandomValues(new Uint32Array(4)).join("-");
  form.querySelector("input[name=run]")?.remove();
  form.append(run);
  begin(run.value);
});
