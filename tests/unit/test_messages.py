"""The list of messages has what users are shown, and nothing else."""

from benchmarks.messages import all_messages, messages_in

SOURCE = '''
"""A docstring is not shown."""
class Away(Exception):
    line = (
        "nobody answers at {url}; "
        "run `headway up`"
    )
def f(name):
    """Nor is this one."""
    key = "some plain text"
    click.echo(f"run {name!r} has ended")
    if not name:
        raise ValueError("give a name, " + "please do")
    return InvalidInput("cpus", 0, "give at least one")
'''


def test_what_is_raised_printed_or_the_line_of_an_error_is_listed() -> None:
    assert [each.text for each in messages_in(SOURCE, "a.py")] == [
        "nobody answers at {url}; run `headway up`",
        "run {name} has ended",
        "give a name,",
        "please do",
        "give at least one",
    ]


def test_of_a_module_of_advice_all_texts_are_but_its_docstrings() -> None:
    texts = {each.text for each in messages_in(SOURCE, "policy/reasons.py")}
    assert "some plain text" in texts
    assert not any("is" in text.split() for text in texts)


def test_errors_advice_and_commands_of_the_package_are_there() -> None:
    files = {each.file for each in all_messages()}
    assert {"errors.py", "policy/reasons.py", "admin/doctor.py", "cli/site.py"} <= files
