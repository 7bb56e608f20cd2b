"""The figures that README and pages show are those of the run that is saved beside them."""

import runpy

import pytest

from blendstream.agents.commands.plan import show
from blendstream.agents.local.demo.spending import by_default, shown_here
from blendstream.blender.planning.spending_plan import PlannedService, expectations
from blendstream.streams.settings.sections import PrivacySettings
from tests.docs.pages import REPOSITORY

FRONT_PAGE = runpy.run_path(str(REPOSITORY / "docs" / "front_page.py"))
TEXT = FRONT_PAGE["RUN"].read_text()
SAVED = FRONT_PAGE["Run"].read(TEXT)
EXPECTED = FRONT_PAGE["pages"](SAVED)


@pytest.mark.parametrize("page", EXPECTED, ids=lambda page: page.name)
def test_a_page_shows_the_figures_of_the_saved_run(page):
    """The README's numbers once were of another run, and of another budget than its text.

    `python docs/front_page.py` writes the pages again, `make front-page` makes a new run.
    """
    assert page.read_text() == EXPECTED[page]


def test_the_pictures_are_of_the_saved_run():
    """A picture that was taken by hand shows something else than the table beside it."""
    assert SAVED.pictures == {name: FRONT_PAGE["digest"](name) for name in FRONT_PAGE["PICTURES"]}
    assert SAVED.pictured >= FRONT_PAGE["EPOCHS"] - 1


def test_the_run_and_its_pages_say_which_way_of_spending_they_show():
    """ε in each epoch and ε for thirty epochs are not the same promise."""
    said = shown_here().splitlines()
    printed = [line.partition("] ")[2] for line in SAVED.printed.splitlines()]

    assert [line for line in printed if line in said] == said
    for page in EXPECTED.values():
        assert "`budget.period_epochs = 0`" in page
        assert "the default" in page or "default settings" in page


def test_what_the_run_says_of_the_default_is_what_the_plan_says_today():
    """A better mechanism changes the plan: the pages must not promise what an older one gave."""
    privacy = PrivacySettings()
    for optin, clients in FRONT_PAGE["SIZES"]:
        service = PlannedService(
            optin, clients, privacy.epsilon, privacy.delta, 30, privacy.head_list_cells
        )
        planned = "\n".join(show(service, expectations(service)))
        assert f"--optin-users {optin} --clients {clients}\n{planned}\n" in TEXT
    for line in by_default(4_000, 36_000, "sharp").splitlines():
        assert line in SAVED.printed


def test_the_demo_cannot_compare_with_the_default_where_a_group_is_empty():
    assert "cannot tell" in by_default(0, 40_000, "sharp")
    assert "cannot tell" in by_default(40_000, 0, "sharp")
