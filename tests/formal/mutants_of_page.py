"""Mutants of the page's access rights, detected by requesting every route as every user and from every origin."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_API = "tests/system/page/test_api.py"
_USERS = f"{_API}::test_every_route_answers_each_user_as_the_docs_say[simple]"
_ORIGINS = f"{_API}::test_every_route_answers_each_origin_as_the_docs_say[simple]"
_STORY = f"{_API}::test_from_the_list_to_an_action_that_is_done_once[simple]"
_LOOKS = f"{_API}::test_what_is_refused_changes_nothing_and_what_is_done_is_in_the_audit_log[simple]"

OF_PAGE: Sequence[Mutant] = (
    Mutant(
        "a route that needs no right is open to everybody, logged in or not",
        "api/app.py",
        "create_app",
        "[Depends(get_user), Depends(same_origin)]",
        "[Depends(same_origin)]",
        test=_USERS,
    ),
    Mutant(
        "whoever is logged in may see every pipeline",
        "api/access.py",
        "_seen_pipeline",
        "found is None or not access.may_see(found.tasks)",
        "found is None",
        test=_USERS,
    ),
    Mutant(
        "whoever may see a pipeline may act on it",
        "api/access.py",
        "acted_pipeline",
        "not access.may_act(found.tasks)",
        "False",
        test=_USERS,
    ),
    Mutant(
        "the list has pipelines that the user may not see",
        "api/routes/pipelines.py",
        "list_pipelines",
        "not access.may_see(item.tasks)",
        "False",
        test=_STORY,
    ),
    Mutant(
        "who may see a pipeline may see the bytes of its dead letters",
        "api/routes/dead_letters.py",
        "read_dead_letters",
        "Acted",
        "Seen",
        test=_USERS,
    ),
    Mutant(
        "a form of another site is taken for a request of the page",
        "api/guard.py",
        "same_origin",
        'media_type != "application/json"',
        "False",
        test=_STORY,
    ),
    Mutant(
        "who may see a pipeline may export its dead letters",
        "api/routes/dead_letters.py",
        "export_dead_letters",
        "Acted",
        "Seen",
        test=_USERS,
    ),
    Mutant(
        "who may see a pipeline may have dry runs of actions on it",
        "api/routes/actions.py",
        "preview_action",
        "Acted",
        "Seen",
        test=_USERS,
    ),
    Mutant(
        "everybody sees a pipeline that no DAG has run",
        "api/access.py",
        "Access.may_see",
        "self.is_administrator",
        "True",
        test=_USERS,
    ),
    Mutant(
        "requests that other sites cause are carried out",
        "api/guard.py",
        "same_origin",
        "_require_own_site(request)",
        "",
        test=_ORIGINS,
    ),
    Mutant(
        "a look at dead letters leaves no trace",
        "api/routes/dead_letters.py",
        "read_dead_letters",
        '_record_look(ledger, found.name, "dead_letters_read", wish, access)',
        "",
        test=_LOOKS,
    ),
)
