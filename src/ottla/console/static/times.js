// Adds the time of the browser's own zone to every moment of the page, which is in UTC. On a phone, where the sections are
// one line that moves sideways, it also shows the one that the page is in.
const zone = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "medium",
});

export function addLocalTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (!Number.isNaN(moment.getTime()) && moment.getTimezoneOffset() !== 0) {
      const local = document.createElement("span");
      local.className = "local";
      local.textContent = `${zone.format(moment)} here`;
      element.append(local);
    }
  }
}

addLocalTimes(document);
const current = document.querySelector("header nav [aria-current]");
current?.parentElement.scrollTo({ left: current.offsetLeft - current.parentElement.clientWidth / 3 });
