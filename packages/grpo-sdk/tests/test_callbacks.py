from heard import Heard

from grpo_sdk.callbacks import Callback, Callbacks


def test_every_callback_is_notified_also_one_that_is_added_later() -> None:
    first, second = Heard(), Heard()
    callbacks = Callbacks([first])
    callbacks.on_warning("a")
    callbacks.add(second)
    callbacks.on_warning("b")
    assert (first.warnings, second.warnings) == (["a", "b"], ["b"])
    assert {name for name in vars(Callback) if name.startswith("on_")} <= vars(Callbacks).keys()


def test_warn_once_goes_by_kind_and_subject_or_by_the_message() -> None:
    watch = Heard()
    callbacks = Callbacks([watch])
    for message in ("a", "a", "b"):
        callbacks.warn_once(message)
    callbacks.warn_once("a", kind="metrics")
    for message in ("3 of 4", "2 of 4"):
        callbacks.warn_once(message, kind="math.a", about="no answer")
    assert watch.warnings == ["a", "b", "a", "3 of 4"]
    resumed = Callbacks([watch])
    resumed.warned = set(callbacks.warned)
    resumed.warn_once("b")
    assert watch.warnings == ["a", "b", "a", "3 of 4"]
