"""Pages in a real browser: nothing is loaded or complained of, tables sort, figures answer, nothing hostile runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from constrint.select.rank import TIE
from tests.support.chromium import DRAWN, Browser, needs_chromium
from tests.support.reports import EVIL, hostile_gpu, report, small_kernel

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A browser with a page, on which some cells of the heat map are excluded, all of it drawn."""
    place = tmp_path_factory.mktemp("page") / "report.html"
    assert report("--gpu", "h200", "--kernel", "gemm.descriptor", "--out", place) == 0
    browser.open(place)
    assert browser.draw_all() >= 6
    return browser


def test_nothing_is_loaded_and_nothing_is_complained_of(page: Browser) -> None:
    assert page.requests() <= {"file", "data", "blob"}
    assert page.console() == []
    # The policy forbids what the page itself does not ask for.
    page.run("fetch('https://example.invalid/').catch(() => { window.refused = true; })")
    page.wait("return window.refused")
    assert any("Content Security Policy" in text for text in page.console())


def test_titles_sort_by_click_and_by_key(page: Browser) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    table = page.driver.find_element(By.CSS_SELECTOR, "table")
    at = [head.text for head in table.find_elements(By.CSS_SELECTOR, "th")].index("us")
    head = table.find_element(By.CSS_SELECTOR, f"th:nth-child({at + 1})")
    rows = "[...document.querySelector('table').tBodies[0].rows]"
    number = f"row.children[{at}].dataset.v ?? row.children[{at}].textContent.replaceAll(',', '')"
    cells = f"return {rows}.map((row) => Number({number}))"
    ranked = page.run(cells)
    assert all(later >= (1 - TIE) * earlier for earlier, later in pairwise(ranked)), (
        "the best first; ties by preference"
    )
    for _ in range(2):
        head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert page.run(cells) == sorted(ranked, reverse=True)
    table.find_element(By.CSS_SELECTOR, "th button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") is None
    assert page.run(cells) == ranked
    assert "sorted by #" in str(page.driver.find_element(By.ID, "said").get_attribute("textContent"))


def test_excluded_cells_say_which_rule_and_with_which_numbers(page: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    plot = page.driver.find_element(By.CSS_SELECTOR, "[id^=gpu-1-heat]")
    cross = plot.find_element(By.CSS_SELECTOR, ".scatterlayer .point")
    page.run("arguments[0].scrollIntoView({ block: 'center' })", plot)
    ActionChains(page.driver).move_to_element(cross).perform()
    page.wait("return document.querySelector('.hoverlayer text') !== null")
    told = plot.find_element(By.CSS_SELECTOR, ".hoverlayer").text
    assert "nothing is valid" in told
    assert "is false" in told
    assert "because" in told


def test_page_is_dark_where_the_reader_prefers_it_and_changes_at_a_click(page: Browser) -> None:
    from selenium.webdriver.common.by import By

    def colours() -> tuple[int, str]:
        page.wait(DRAWN)
        paper = page.run("return getComputedStyle(document.body).backgroundColor")
        ink = page.run("return getComputedStyle(document.querySelector('.plot .xtick text')).fill")
        return sum(map(int, paper[4:-1].split(","))), ink

    light = colours()
    page.look(theme="dark")
    dark = colours()
    page.driver.find_element(By.ID, "theme").click()
    assert dark[0] < 150 < 600 < light[0]
    assert dark[1] != light[1]
    assert colours() == light


def test_page_fits_a_phone(page: Browser) -> None:
    page.look(width=375)
    inside = "[...document.querySelectorAll('.plot .main-svg')].every((s) => s.getBoundingClientRect().right <= 375)"
    page.wait(f"return {inside}")
    assert page.run("return document.documentElement.scrollWidth") <= 375


def test_tables_of_several_gpus_are_packed_and_sort_alike(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "two.html"
    assert report("--gpu", "h200", "--gpu", "mi300x", "--kernel", "gemm.pointer", "--out", place) == 0
    browser.open(place)
    browser.draw_all()
    assert browser.run("return [...document.querySelectorAll('[data-later]')].every((one) => one.children.length)")
    heads = "[...document.querySelectorAll('[id^=gpu-2-heat][id$=-part] th')]"
    at = browser.run(f"return {heads}.findIndex((head) => head.textContent.trim() === 'us')")
    cells = f"[...document.querySelectorAll('[id^=gpu-2-heat][id$=-part] tbody tr')].map((row) => row.children[{at}])"
    times = f"return {cells}.map((cell) => Number(cell.dataset.v ?? cell.textContent.replaceAll(',', '')))"
    before = browser.run(times)
    browser.run(f"{heads}[{at}].querySelector('button').click()")
    after, numbers = browser.run(times), [time for time in before if time is not None]
    # What has no time, since rules exclude it, comes last.
    assert before != after == sorted(numbers) + [None] * (len(before) - len(numbers))
    browser.look(width=390)
    # Figures follow the window's width a little later.
    browser.wait("return document.documentElement.scrollWidth <= 390")
    assert browser.console() == []


def test_hostile_texts_are_shown_and_do_not_run(browser: Browser, tmp_path: Path) -> None:
    place, gpu = tmp_path / "hostile.html", hostile_gpu(tmp_path)
    assert report("--gpu", gpu, "--kernel", small_kernel(tmp_path, EVIL), "--out", place) == 0
    browser.open(place)
    browser.draw_all()
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('img, script[src], .plot a, .plot b').length") == 0
    text = browser.run("return document.body.innerText")
    assert EVIL in text
    assert str(gpu) in text
    # A title of the waterfall's axis, which is cut.
    ticks = browser.run("return [...document.querySelectorAll('.plot .ytick text')].map((one) => one.textContent)")
    assert f"area {EVIL}"[:21] + "…" in ticks
    assert browser.console() == []
