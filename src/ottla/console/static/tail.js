// Shows records of a live tail as they come, newest first. The server makes their HTML, with everything escaped.
import { addLocalTimes } from "./times.js";

const ROWS_MAX = 200;
const list = document.getElementById("tail");
const status = document.getElementById("tail-status");
const pause = document.getElementById("tail-pause");
let source = null;
let last = "";
let shown = 0;
let skipped = 0n;
let missing = "";

function named(partitions) {
  return `${partitions.length > 1 ? "partitions" : "partition"} ${partitions.join(", ")}`;
}

// Brokers that say nothing of their partitions while others do, or which partitions are back.
function missingOf(found) {
  const silent = found.silent.map((each) => `${named(each.partitions)} (${each.why})`);
  const back = found.back.length ? ` Back: ${named(found.back)}.` : "";
  return (silent.length ? ` Silent: ${silent.join("; ")}.` : "") + back;
}

function say(what) {
  const more = skipped ? `, ${skipped.toLocaleString("en")} skipped as there were too many` : "";
  status.textContent = `${what}: ${shown.toLocaleString("en")} new records shown${more}.${missing}`;
}

function add(rows) {
  document.getElementById("tail-empty")?.remove();
  const template = document.createElement("template");
  for (const html of rows) {
    template.innerHTML = html;
    addLocalTimes(template.content);
    list.prepend(template.content);
  }
  while (list.childElementCount > ROWS_MAX) {
    list.lastElementChild.remove();
  }
}

function listen() {
  const address = new URL(list.dataset.events, location.href);
  if (last) {
    address.searchParams.set("at", last);
  }
  source = new EventSource(address);
  source.addEventListener("open", () => say("Live"));
  source.addEventListener("records", (event) => {
    const found = JSON.parse(event.data);
    last = event.lastEventId;
    shown += found.rows.length;
    skipped += BigInt(found.skipped);
    add(found.rows);
    if (!found.problem) {
      missing = missingOf(found);
    }
    say(found.problem ? `Waiting (${found.problem})` : "Live");
  });
  source.addEventListener("over", (event) => {
    source.close();
    say(`Over${JSON.parse(event.data).problem ? ` (${JSON.parse(event.data).problem})` : ""}`);
  });
  source.addEventListener("error", () => {
    say(source.readyState === EventSource.CLOSED ? "Over: reload the page" : "Not connected, trying again");
  });
}

pause.hidden = false;
pause.addEventListener("click", () => {
  if (source) {
    source.close();
    source = null;
    pause.textContent = "Go on";
    say("Paused");
  } else {
    pause.textContent = "Pause";
    listen();
  }
});
listen();
