"""Pictures of pages beside those that were looked at: one sheet for each theme, with a small picture of each page.

Chromium makes the sheet and compares it, so that no library reads pictures. Small ones are alike where only the edges
of letters differ, and differ where a table, a colour or a column is not where it was.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser

FOLDER: Final = Path(__file__).parent / "sheets"
MADE_BY: Final = FOLDER / "made_by.json"
"""The browser and the font that the sheets are of: others set letters elsewhere."""
COLUMNS: Final = 5
WIDTH, HEIGHT = 240, 160
"""The size of one picture in a sheet, a fifth of the page."""
SHARE_MAX: Final = 0.02
"""Pixels of a picture that may differ. What is written in it differs by less, a missing table by more."""
_COMPARE: Final = """async ({pictures, known, columns, width, height}) => {
  const loaded = address => new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => fail(new Error("no picture"));
    image.src = address;
  });
  const canvas = () => {
    const made = document.createElement("canvas");
    made.width = columns * width;
    made.height = Math.ceil(pictures.length / columns) * height;
    const drawn = made.getContext("2d", {willReadFrequently: true});
    drawn.imageSmoothingQuality = "high";
    return [made, drawn];
  };
  const place = at => [(at % columns) * width, Math.floor(at / columns) * height, width, height];
  const [sheet, now] = canvas(), [, before] = canvas();
  for (const [at, address] of pictures.entries()) {
    now.drawImage(await loaded(address), ...place(at));
  }
  const shares = [];
  if (known) {
    before.drawImage(await loaded(known), 0, 0);
    for (const at of pictures.keys()) {
      const one = now.getImageData(...place(at)).data, other = before.getImageData(...place(at)).data;
      let different = 0;
      for (let pixel = 0; pixel < one.length; pixel += 4) {
        different += [0, 1, 2].some(color => Math.abs(one[pixel + color] - other[pixel + color]) > 24);
      }
      shares.push(different / (width * height));
    }
  }
  return {sheet: sheet.toDataURL("image/png"), shares};
}"""


def made_by(browser: Browser) -> dict[str, str]:
    """The browser and the font of this machine."""
    program = shutil.which("fc-match")
    font = "" if program is None else subprocess.run([program, "system-ui"], capture_output=True, text=True).stdout
    return {"chromium": browser.version, "font": font.strip()}


def is_comparable(browser: Browser, theme: str) -> bool:
    """Whether there is a sheet of this browser and font."""
    return (
        MADE_BY.exists()
        and (FOLDER / f"{theme}.png").exists()
        and bool(json.loads(MADE_BY.read_text()) == made_by(browser))
    )


def compared(browser: Browser, theme: str, pictures: Mapping[str, bytes], kept: Path) -> dict[str, float]:
    """Shares of pixels that differ from the sheet of a theme, of pages where they are too many. The sheet of now is
    written to a folder. Where another browser or font made the sheet, nothing is compared."""
    sheet = FOLDER / f"{theme}.png"
    known = _address(sheet.read_bytes()) if is_comparable(browser, theme) else ""
    wanted = {
        "pictures": [_address(each) for each in pictures.values()],
        "known": known,
        "columns": COLUMNS,
        "width": WIDTH,
        "height": HEIGHT,
    }
    page = browser.new_page()
    found: dict[str, Any] = page.evaluate(_COMPARE, wanted)
    page.close()
    (kept / sheet.name).write_bytes(base64.b64decode(found["sheet"].partition(",")[2]))
    (kept / MADE_BY.name).write_text(json.dumps(made_by(browser), indent=2) + "\n")
    shares = dict(zip(pictures, found["shares"], strict=False))
    return {name: round(share, 3) for name, share in shares.items() if share > SHARE_MAX}


def _address(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"
