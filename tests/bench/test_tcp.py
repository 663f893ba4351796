"""The congestion control that benchmarks run with."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.method import tcp


def test_the_setting_of_the_machine_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "tcp_congestion_control"
    setting.write_text("bbr\n")
    monkeypatch.setattr(tcp, "_SETTING", setting)
    with pytest.raises(KeyboardInterrupt), tcp.default_congestion_control():
        assert tcp.congestion_control() == "cubic"
        raise KeyboardInterrupt
    assert tcp.congestion_control() == "bbr"


def test_a_machine_without_the_setting_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "_SETTING", tmp_path / "none" / "tcp_congestion_control")
    with tcp.default_congestion_control():
        assert tcp.congestion_control() == "?"
