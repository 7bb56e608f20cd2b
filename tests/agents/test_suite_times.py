"""The end of a test run says where its time went."""

from tests.suite_times import FILES_SHOWN, table


def test_each_process_and_the_longest_files_have_a_line():
    lines = table({"gw0": 600.0, "gw1": 595.0}, {"a.py": 5.0, "b.py": 1190.0}, {"a.py": 3}, 610.0)

    assert lines == [
        "   600.0 s of 610 s  gw0",
        "   595.0 s of 610 s  gw1",
        "  1190.0 s      0 tests  b.py",
        "     5.0 s      3 tests  a.py",
    ]


def test_the_other_files_are_added_up():
    files = {f"{number:03}.py": 1.0 for number in range(FILES_SHOWN + 5)}
    lines = table({"gw0": 1.0}, files, dict.fromkeys(files, 2), 1.0)

    assert len(lines) == 1 + FILES_SHOWN + 1
    assert lines[-1] == "     5.0 s     10 tests  in 5 other files"
