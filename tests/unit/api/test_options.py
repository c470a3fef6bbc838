"""Options of tasks: what they become, and what is refused by name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bough.api.session.launch import find_place, read_cores
from bough.api.submit.arrays import array_length
from bough.api.submit.task_options.options import AT_SERVICE, DEFAULTS, read_options
from bough.errors import UserError
from bough.model.filtering import filtered
from bough.model.sites.resources import OWN_PYTHON, Needs
from bough.model.spaces import product


def test_options_become_needs_and_limits() -> None:
    found = read_options(
        DEFAULTS,
        {
            "cores": 2,
            "memory": "4GB",
            "gpus": 1,
            "resources": {"license": 1},
            "timeout": "1h",
            "retries": 2,
            "name": "x",
        },
    )
    assert (found.needs.cores, found.needs.memory, found.needs.gpus) == (2, 4 * 10**9, 1)
    assert found.needs.named == (("license", 1),)
    assert (found.limits.timeout, found.limits.memory, found.limits.retries) == (3600, 4 * 10**9, 2)
    assert found.name == "x"


def test_later_options_win_and_none_says_nothing() -> None:
    base = read_options(DEFAULTS, {"cores": 2, "priority": 3, "memo": False})
    found = read_options(base, {"cores": None, "priority": 5})
    assert (found.needs.cores, found.priority, found.memo) == (2, 5, False)
    assert read_options(base, {"name": None}) is base


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("cores", -1, "cores is -1"),
        ("cores", "two", "cores is 'two'"),
        ("memory", "much", "memory is 'much'"),
        ("timeout", "soon", "timeout is 'soon'"),
        ("timeout", float("inf"), "timeout is inf"),
        ("backoff", -1, "backoff is -1"),
        ("retries", 1.5, "retries is 1.5"),
        ("resources", {"cores": 1}, "give cores= instead"),
        ("resources", ["license"], "give a dict"),
        ("name", 5, "name is 5"),
        ("after", "12", "after is '12'"),
        ("speed", 1, "no option 'speed'"),
    ],
)
def test_a_wrong_option_is_named(option: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_options(DEFAULTS, {option: value})


def test_the_time_after_which_a_silent_task_is_sent_again_is_read() -> None:
    assert read_options(DEFAULTS, {"replay": "2m"}).limits.resend_after == 120
    assert read_options(read_options(DEFAULTS, {"replay": 5}), {"retries": 1}).limits.resend_after == 5


BEYOND = (2**63, -(2**63) - 1, 10**400, 10**5000, float("nan"), float("inf"), -float("inf"))


@pytest.mark.parametrize("option", ["priority", "retries", "cores", "gpus", "memory", "timeout", "backoff", "replay"])
def test_what_no_store_can_hold_is_refused_at_the_call(option: str) -> None:
    for value in BEYOND:
        with pytest.raises(UserError, match=f"^{option} is "):
            read_options(DEFAULTS, {option: value})
        with pytest.raises(UserError, match="resources"):
            read_options(DEFAULTS, {"resources": {"licence": value}})


@pytest.mark.parametrize("text", ["a\0b", "\udcff", "y" * 70_000])
def test_texts_that_no_store_can_hold_are_refused(text: str) -> None:
    for said in ({"name": text}, {"attributes": {text: "x"}}, {"attributes": {"x": text}}, {"resources": {text: 1}}):
        with pytest.raises(UserError):
            read_options(DEFAULTS, said)


@pytest.mark.parametrize("amount", ["1e400", "infGB", "nan", "-1GB", "9" * 400 + "TB", 10**400])
def test_an_amount_without_end_is_none(amount: str | int) -> None:
    with pytest.raises(UserError, match="memory is "):
        read_options(DEFAULTS, {"memory": amount})


@pytest.mark.parametrize("given", [float("nan"), float("inf"), 10**400, 0, -1, True, "2"])
def test_cores_of_a_session_are_bounded(given: object) -> None:
    with pytest.raises(UserError, match="cores is "):
        read_cores(given)


@pytest.mark.parametrize(
    ("name", "store"),
    [
        ("a\0b", None),
        ("\udcff", None),
        (None, "a\0b"),
        (None, "p/" * 1500),
        (None, 2**63),
        (2**63, None),
        ("ü" * 125, None),
    ],
)
def test_a_session_s_name_and_store_are_bounded(name: object, store: object) -> None:
    with pytest.raises(UserError):
        find_place(name, store)


@pytest.mark.parametrize("items", [range(2**70), range(10**9 + 1)])
def test_an_array_of_too_many_tasks_is_refused(items: range) -> None:
    with pytest.raises(UserError, match="too many tasks"):
        array_length(items)
    with pytest.raises(UserError, match=r"too many (values|tasks)"):
        array_length(product(x=items))
    assert array_length(range(10**9)) == 10**9


def test_a_filter_over_more_than_can_be_looked_at_is_refused() -> None:
    with pytest.raises(UserError, match="1000000000000 combinations"):
        filtered(product(a=range(10**6), b=range(10**6)), lambda a: a)


# --- amounts that grow ----------------------------------------------------------------------------------


def test_amounts_may_grow_from_one_attempt_to_the_next() -> None:
    found = read_options(DEFAULTS, {"memory": "2GB*2", "timeout": "1h*1.5", "retries": 3})
    assert (found.needs.memory, found.limits.memory, found.limits.memory_growth) == (2 * 10**9, 2 * 10**9, 2)
    assert (found.limits.timeout, found.limits.timeout_growth) == (3600, 1.5)
    fixed = read_options(found, {"memory": "1GB", "timeout": 60})
    assert (fixed.limits.memory_growth, fixed.limits.timeout_growth) == (0, 0)
    assert read_options(found, {"cores": 2}).limits == found.limits


@pytest.mark.parametrize("value", ["2GB*", "2GB*x", "2GB*1", "2GB*0.5", "2GB*101", "2GB*nan", "*2", "2*2*2GB"])
def test_a_wrong_factor_is_named(value: str) -> None:
    with pytest.raises(UserError, match="memory is"):
        read_options(DEFAULTS, {"memory": value, "retries": 1})


def test_what_grows_needs_retries() -> None:
    for name, value in (("memory", "2GB*2"), ("timeout", "1h*2")):
        with pytest.raises(UserError, match=f"{name} is .* give retries="):
            read_options(DEFAULTS, {name: value})


def test_functions_at_a_service_say_their_python_whatever_else_they_need() -> None:
    assert DEFAULTS.call_needs == DEFAULTS.needs == Needs()
    assert AT_SERVICE.needs == Needs()
    options = read_options(read_options(AT_SERVICE, {"cores": 2}), {"name": "x", "memory": "1GB"})
    assert options.needs == Needs(2, 10**9)
    assert options.call_needs == Needs(2, 10**9, python=OWN_PYTHON)
    assert read_options(DEFAULTS, {"cores": 2}).call_needs == Needs(2)


def test_sites_narrow_and_requirements_add_up() -> None:
    around = read_options(AT_SERVICE, {"sites": ["local", "alpha", "local"]})
    assert around.needs.sites == ("alpha", "local")
    inner = read_options(around, {"sites": "alpha", "requires": " memory_gb >= 64 ", "cores": 2})
    assert (inner.needs.sites, inner.needs.requires, inner.needs.cores) == (("alpha",), "memory_gb >= 64", 2)
    assert inner.call_needs == replace(inner.needs, python=OWN_PYTHON)
    both = read_options(inner, {"requires": "rack == 7"})
    assert both.needs.requires == "(memory_gb >= 64) and (rack == 7)"
    assert read_options(both, {"memory": "1GB"}).needs == replace(both.needs, memory=10**9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sites": []}, "sites is empty"),
        ({"sites": 3}, "sites is 3; give a list of names"),
        ({"sites": [3]}, "sites holds 3"),
        ({"sites": [""]}, "sites is ''"),
        ({"sites": ["beta"]}, "sites has 'beta'; what is around it is bound to: alpha, local"),
        ({"requires": 3}, "requires is 3; give a text"),
        ({"requires": "cores >"}, "requires is 'cores >'; it is not an expression"),
        ({"requires": "x" * 1001}, "requires has 1001 characters"),
        ({"requires": "cores > 1 or " * 70 + "cores"}, "too long"),
    ],
)
def test_wrong_places_are_named(options: dict[str, object], said: str) -> None:
    around = read_options(DEFAULTS, {"sites": ["local", "alpha"]})
    with pytest.raises(UserError, match=said):
        read_options(around, options)


def test_whether_a_task_is_idempotent_is_said_or_denied_or_not_known() -> None:
    assert read_options(DEFAULTS, {"cores": 2, "timeout": 5}).limits.idempotent is None
    for said in (True, False):
        one = read_options(DEFAULTS, {"idempotent": said})
        assert one.limits.idempotent is said
        assert read_options(one, {"timeout": 5}).limits.idempotent is said
        assert read_options(one, {"idempotent": not said}).limits.idempotent is (not said)
    with pytest.raises(UserError, match="idempotent is 'no'; give True or False"):
        read_options(DEFAULTS, {"idempotent": "no"})


def test_what_a_task_writes_is_kept_unless_it_says_otherwise() -> None:
    assert read_options(DEFAULTS, {"cores": 2}).limits.keep
    temporary = read_options(DEFAULTS, {"keep": False})
    assert not temporary.limits.keep
    assert not read_options(temporary, {"timeout": 5}).limits.keep
    with pytest.raises(UserError, match="keep is 'no'; give True, False or \"later\""):
        read_options(DEFAULTS, {"keep": "no"})
    assert read_options(DEFAULTS, {"keep": "later"}).limits.keep == "later"
