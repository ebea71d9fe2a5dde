"""The wheel contains the files that the page needs, but not the page's sources."""

from __future__ import annotations

import gzip
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
UI = "airflow_provider_ckpt/ui/"
BUNDLE = {f"{UI}bundle/{name}" for name in ("page.umd.js", "icon.svg", "icon-dark.svg")}


def test_the_wheel_contains_the_page_s_bundle_and_no_sources_packages_or_maps_of_it() -> None:
    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}

    assert {name for name in files if name.startswith(UI)} == BUNDLE
    assert "airflow_provider_ckpt/plugin.py" in files


def test_the_bundle_is_below_150_kb_compressed_and_without_react() -> None:
    bundle = (ROOT / UI / "bundle/page.umd.js").read_bytes()

    assert len(gzip.compress(bundle)) < 150_000
    assert b"react.production" not in bundle
    assert b"sourceMappingURL" not in bundle


def test_lock_files_hold_versions_and_hashes_and_no_address() -> None:
    locks = [ROOT / UI / "package-lock.json", *ROOT.glob("*.lock"), *(ROOT / "tests").rglob("*.lock")]
    locks += (ROOT / "tests" / "compat").glob("*.txt")

    assert len(locks) > 2
    assert [str(lock) for lock in locks if "://" in lock.read_text()] == []
