"""`make site`: the pages build as a website, strictly, with every page in its navigation and nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def build(site: Path, config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_site_is_whole(tmp_path: Path) -> None:
    """Strict: a page that the navigation lacks, a link and an anchor that lead nowhere fail the build."""
    done = build(tmp_path, ROOT / "mkdocs.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), page
    monitoring = (tmp_path / "production" / "monitoring.html").read_text(encoding="utf-8")
    assert 'href="../repository/deploy/prometheus/alerts.yml"' in monitoring
    assert (tmp_path / "repository" / "deploy" / "prometheus" / "alerts.yml").is_file()
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|rel="stylesheet" href)="https?:', index), "a page loads something from elsewhere"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(named) == len(set(named))
    assert {name for name in named if not name.startswith("repository/")} == pages


def test_a_link_that_leads_nowhere_fails(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\nhooks: []\nextra_css: []\nnav: [index.md]\n", encoding="utf-8")
    page = tmp_path / "docs" / "index.md"
    for text, said in (("[a](#page)", ""), ("[a](nowhere.md)", "nowhere.md"), ("[a](#nowhere)", "#nowhere")):
        page.write_text(f"# Page\n\n{text}\n", encoding="utf-8")
        done = build(tmp_path / "site", config)
        assert (done.returncode != 0) == bool(said), done.stdout + done.stderr
        assert said in done.stdout + done.stderr
