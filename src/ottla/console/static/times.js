// Adds the time of the browser's own zone to every moment of the page, which is in UTC.
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
