"""The report in headless Chromium: every control works, and hostile names stay text.

Debian's packages ``chromium`` and ``chromium-driver`` are enough.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_training.study.report.server import ReportServer
from rl_training.study.report.writing import write_report
from tests.study.report.building import study_of
from tests.study.report.test_page import HOSTILE
from tests.study.simulated import ended, simulate_study, write_index

pytestmark = pytest.mark.slow

TASKS = ("Pendulum-v1", "CartPole-v1")
SECONDS = 20.0


class Browser:
    """A browser, and short names for what the tests ask it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str, width: int = 1400, height: int = 900) -> None:
        """Open a page in a window of a certain size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the result of a script."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def count(self, selector: str) -> int:
        """Return how many elements there are."""
        return int(self.run("document.querySelectorAll(arguments[0]).length", selector))

    def texts(self, selector: str) -> list[str]:
        """Return the text of elements."""
        script = "[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        """Click an element."""
        self.driver.find_element("css selector", selector).click()

    def wait(self, check: Callable[[], Any]) -> None:
        """Wait until a check is true."""
        end = time.monotonic() + SECONDS
        while not check():
            assert time.monotonic() < end, "the page did not change"
            time.sleep(0.05)

    def pointer(self) -> Any:
        """Return a chain of actions of the pointer."""
        from selenium.webdriver.common.action_chains import ActionChains

        return ActionChains(self.driver)

    def errors(self) -> list[str]:
        """Return what the page has complained about."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if "favicon" not in entry["message"]]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, service = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or service is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    yield chrome
    chrome.quit()


@pytest.fixture
def browser(driver: Any) -> Iterator[Browser]:
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser = Browser(driver)
    browser.errors()  # forget those of earlier tests
    yield browser
    assert browser.errors() == []


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser") / "study"
    labels = ("sac", "td3", "tqc")
    simulate_study(folder, labels=labels, tasks=TASKS, seeds=5, points=12)
    return write_report([folder]).path.as_uri()


# --- The charts -----------------------------------------------------------------


def test_every_chart_is_drawn(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.count("figure") == 2 + 4 + 2 + 1
    assert browser.count("figure .plot > svg") == browser.count("figure")
    assert browser.count("#task-0 .line") == browser.count("#task-0 .band") == 3
    assert browser.count("#aggregate-iqm .whisker") == 3
    assert browser.texts(".chip") == ["sac", "td3", "tqc"]


def test_a_label_is_toggled_in_every_chart(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.click('.chip[data-label="1"]')
    browser.wait(lambda: browser.count("#task-0 .line") == 2)
    assert browser.count("#task-1 .line") == browser.count("#profile .line") == 2
    assert browser.count("#improvement .dot") == 1
    assert browser.count("tr.off") >= 1
    browser.click('.chip[data-label="1"]')
    browser.wait(lambda: browser.count("#task-0 .line") == 3)
    chip = browser.driver.find_element("css selector", '.chip[data-label="2"]')
    browser.pointer().double_click(chip).perform()
    browser.wait(lambda: browser.count("#task-0 .line") == 1)


def test_dragging_zooms_and_a_double_click_resets(browser: Browser, page: str) -> None:
    browser.open(page)
    ticks = browser.texts("#task-0 svg text")
    plot = browser.driver.find_element("css selector", "#task-0 .plot")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    chain = browser.pointer().move_to_element_with_offset(plot, -60, 0).click_and_hold()
    chain.move_by_offset(60, 0).move_by_offset(60, 0).perform()
    assert browser.count("#task-0 .selection") == 1
    browser.pointer().release().perform()
    browser.wait(lambda: browser.count("#task-0 .reset") == 1)
    assert browser.texts("#task-0 svg text") != ticks
    browser.pointer().double_click(plot).perform()
    browser.wait(lambda: browser.count("#task-0 .reset") == 0)
    assert browser.texts("#task-0 svg text") == ticks
    browser.run("arguments[0].focus()", plot)
    browser.pointer().send_keys("+").perform()
    browser.wait(lambda: browser.count("#task-0 .reset") == 1)
    browser.click("#task-0 .reset")
    assert browser.texts("#task-0 svg text") == ticks


def test_pointing_shows_values_and_the_runs_of_a_line(browser: Browser, page: str) -> None:
    browser.open(page)
    plot = browser.driver.find_element("css selector", "#task-0 .plot")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    assert browser.count("#task-0 .seed") == 0
    browser.pointer().move_to_element(plot).perform()
    browser.wait(lambda: browser.count("#task-0 .tip tr") == 3)
    assert "5 runs" in browser.texts("#task-0 .tip")[0]
    place = browser.run(
        "(() => { const line = document.querySelector('#task-0 .line');"
        " const point = line.getPointAtLength(line.getTotalLength() / 2);"
        " const box = document.querySelector('#task-0 svg').getBoundingClientRect();"
        " return [Math.round(box.left + point.x), Math.round(box.top + point.y)]; })()"
    )
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    actions = ActionBuilder(browser.driver)
    actions.pointer_action.move_to_location(*place)
    actions.perform()
    browser.wait(lambda: browser.count("#task-0 .seed") == 5)
    browser.click("#seeds")
    browser.wait(lambda: browser.count("#task-0 .seed") == 15)


def test_steps_and_time(browser: Browser, page: str) -> None:
    browser.open(page)
    assert "Environment steps" in browser.texts("#task-0 svg text")
    browser.click('[data-axis="time"]')
    browser.wait(lambda: "Training time (seconds)" in browser.texts("#task-0 svg text"))
    assert "Training time (seconds)" in browser.texts("#aggregate-curve svg text")
    assert "Normalized score" in browser.texts("#profile svg text")
    browser.click('[data-axis="steps"]')
    browser.wait(lambda: "Environment steps" in browser.texts("#task-0 svg text"))


def test_small_charts_have_a_scale_and_both_labels(browser: Browser, tmp_path: Path) -> None:
    long = "a label that is much longer than the others"
    scores: Any = {name: {"Pendulum-v1": [-2200.0, -1500.0, -800.0]} for name in (long, long + "!")}
    study = study_of(tmp_path / "study", scores)
    browser.open(write_report([study]).path.as_uri(), width=390, height=800)
    for chart in ("aggregate-iqm", "aggregate-mean", "aggregate-optimality_gap"):
        assert browser.count(f"#{chart} .gridline") >= 2
    name = browser.run("document.querySelector('#improvement .name').firstChild.data")
    assert [part[:4] for part in name.split(" > ")] == ["a la", "a la"]


def test_columns_are_sorted(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.click("#table-runs th:nth-child(5) button")
    scores = browser.run(
        "[...document.querySelectorAll('#table-runs tbody td:nth-child(5)')]"
        ".map((e) => Number(e.dataset.value))"
    )
    assert scores == sorted(scores)
    browser.click("#table-runs th:nth-child(5) button")
    assert browser.count('#table-runs th[aria-sort="descending"]') == 1


# --- Looks ----------------------------------------------------------------------


def background(browser: Browser) -> str:
    return str(browser.run("getComputedStyle(document.body).backgroundColor"))


def test_dark_mode_follows_the_system_and_the_button(browser: Browser, page: str) -> None:
    browser.open(page)
    light = background(browser)
    browser.click("#theme")
    dark = background(browser)
    assert light != dark
    browser.click("#theme")
    assert background(browser) == light
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.open(page)
    assert background(browser) == dark


def test_a_phone_has_no_horizontal_scrolling(browser: Browser, page: str) -> None:
    browser.open(page, width=390, height=800)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    widths = browser.run(
        "[...document.querySelectorAll('.plot')].map((e) => e.getBoundingClientRect().right)"
    )
    assert max(widths) <= 390
    assert browser.count("#task-0 .line") == 3


def test_a_phone_shows_whole_keys(browser: Browser, tmp_path: Path) -> None:
    configs = {"a": {"algo_kwargs": {"top_quantiles_to_drop_per_net": 2}}}
    study = study_of(tmp_path / "study", {"a": {"t": [1.0]}, "b": {"t": [1.0]}}, configs=configs)
    browser.open(write_report([study]).path.as_uri(), width=390, height=800)
    cell = "document.querySelector('#table-settings td:first-child')"
    assert browser.run(f"{cell}.textContent") == "top_quantiles_to_drop_per_net"
    assert browser.run(f"{cell}.scrollWidth") <= browser.run(f"{cell}.clientWidth")


def test_printing_hides_the_controls(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = browser.run("getComputedStyle(document.querySelector('.controls')).display")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert shown == "none"
    assert len(browser.driver.print_page()) > 20_000


def test_folded_parts_are_printed(browser: Browser, page: str) -> None:
    browser.open(page)
    folded = browser.count("details")
    assert (folded >= 1, browser.count("details[open]")) == (True, 0)
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.count("details[open]") == folded
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.count("details[open]") == 0


# --- Hostile names and live pages -------------------------------------------------


def test_hostile_names_do_not_run(browser: Browser, tmp_path: Path) -> None:
    scores: Any = {name: {name: [1.0, 2.0, 3.0], "b": [1.0, 2.0, "failed"]} for name in HOSTILE}
    study = study_of(tmp_path / "study", scores, name=HOSTILE[0])
    browser.open(write_report([study]).path.as_uri())
    assert browser.texts(".chip") == list(HOSTILE)
    browser.click("#seeds")
    chip = browser.driver.find_element("css selector", ".chip")
    browser.pointer().move_to_element(chip).perform()
    assert browser.count("img") == 0
    assert browser.count("script") == 2
    assert browser.driver.title == HOSTILE[0]


def test_injected_code_is_blocked(browser: Browser, page: str) -> None:
    """Even if a name were not escaped, the policy of the page would not run it."""
    browser.open(page)
    browser.run(
        "document.body.insertAdjacentHTML('beforeend',"
        ' \'<img src="data:," onerror="window.ran = 1" onload="window.ran = 1">\')'
    )
    browser.run(
        "(() => { const e = document.createElement('script'); e.textContent = 'window.ran = 2';"
        " document.body.append(e); })()"
    )
    blocked = browser.run(
        "fetch('http://127.0.0.1:9/').then(() => 'sent', (e) => e.constructor.name)"
    )
    assert blocked == "TypeError"
    browser.wait(lambda: any("Content Security Policy" in text for text in browser.errors()))
    assert browser.run("window.ran") is None
    browser.errors()


def test_a_live_page_follows_the_study(browser: Browser, tmp_path: Path) -> None:
    scores: Any = {"sac": {"a": [-2.0, -1.0, "running"]}, "td3": {"a": [-3.0, -2.0, -1.0]}}
    study = study_of(tmp_path / "study", scores)
    server = ReportServer(study, port=0)
    server.start()
    try:
        browser.open(server.url)
        browser.wait(lambda: "up to date" in browser.texts("#live")[0])
        browser.click('.chip[data-label="1"]')
        browser.click('[data-axis="time"]')
        assert "5 of 6 runs ended" in browser.texts(".facts")[0]
        write_index(study, [ended("label0/task0/seed2")])
        browser.wait(lambda: "6 of 6 runs ended" in browser.texts(".facts")[0])
        assert browser.count("#task-0 .line") == 1
        assert browser.count('[data-axis="time"][aria-pressed="true"]') == 1
    finally:
        server.close()
    browser.wait(lambda: "does not answer" in browser.texts("#live")[0])
    browser.errors()  # of the connection
