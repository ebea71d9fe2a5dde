"""The graph of a DAG run on Airflow's pages, in a real browser, shows which tasks of the task group ran.

``make screenshots`` makes the documentation's picture with this test.
"""

from __future__ import annotations

from pathlib import Path

from tests.services.browser import page_of
from tests.system.airflow.deployment import Deployment

STATES = {
    "plan": "success",
    "submit": "success",
    "settle": "success",
    "route": "success",
    "retry": "success",
    "done": "success",
    "dead_letters": "success",
    "hold": "skipped",
    "summary": "success",
}
AT_REST = """() => {
  const before = window.transform;
  window.transform = document.querySelector(".react-flow__viewport").style.transform;
  return before === window.transform;
}"""


def test_the_graph_of_a_run_shows_which_tasks_ran(deployment: Deployment, pictures: Path) -> None:
    """Records are damaged, and the target is busy at the first attempt."""
    deployment.write("visits", range(80), damaged=3)
    deployment.refuse("visits", whether=True)
    run_id = deployment.begin("visits")
    deployment.reaches("visits", run_id, "replicate.submit", "success")
    deployment.refuse("visits", whether=False)
    deployment.succeeds("visits", run_id)

    ada = deployment.airflow.passwords["ada"]
    with page_of(deployment.airflow.url, "ada", ada, size=(1280, 680), scale=1.5) as page:
        page.goto(f"/dags/visits/runs/{run_id}")
        page.get_by_label("Show Graph (Press g)").click()
        page.get_by_test_id("expand-all-button").click()
        for task, state in STATES.items():
            page.locator(f".react-flow__node[data-id='replicate.{task}']").get_by_text(state, exact=True).wait_for()
        page.get_by_label("Collapse Details Panel").click()
        page.get_by_label("fit view").click()
        page.wait_for_function(AT_REST, polling=500)
        page.screenshot(path=pictures / "dag-run.png")
