"""The tree that CONTRIBUTING.md and README.md draw is the tree there is."""

import ast
import re
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text()
#: Files that a convention names alike: of a package, of each process, of each command.
BY_CONVENTION = {"__init__", "cli", "errors", "metrics"}
PACKAGES = ("blender", "streams", "agents", "localclient", "evaluation", "webclient")


def drawn_folders() -> set[str]:
    """The folders of the tree in CONTRIBUTING.md, as paths."""
    tree = CONTRIBUTING.partition("## The tree\n")[2].split("```")[1]
    folders, parent = set(), ""
    for indent, name in re.findall(r"^( *)([a-z_/]+)/ ", tree, re.MULTILINE):
        folders.add(f"{parent}/{name}" if indent else name)
        parent = parent if indent else name
    return folders


def rooms() -> set[str]:
    """The packages and the folders right below them that hold Python."""
    tracked = {path.parent for name in PACKAGES for path in (REPOSITORY / name).glob("*/*.py")}
    return {*PACKAGES, *(str(folder.relative_to(REPOSITORY)) for folder in tracked)}


def test_every_folder_that_is_drawn_exists_and_every_room_is_drawn():
    """A newcomer finds the place for a change by the name of a folder."""
    drawn = drawn_folders()

    assert [folder for folder in drawn if not (REPOSITORY / folder).is_dir()] == []
    assert sorted(rooms() - drawn) == []


def test_the_readme_names_every_top_folder():
    """Its table of folders is the first map that a reader sees."""
    readme = (REPOSITORY / "README.md").read_text()

    for folder in (*PACKAGES, "src/blendstream", "deploy", "tests", "bench", "docs"):
        assert f"`{folder}/`" in readme


def test_contributing_tells_where_each_kind_of_thing_goes_in_one_line():
    """Each row names files that exist (`test_links_and_named_files_exist`)."""
    rows = dict(re.findall(r"^\| ([a-z][^|]+) \| (.+) \|$", CONTRIBUTING, re.MULTILINE))

    for thing in ("metric", "verb", "setting", "randomizer", "refusal of", "endpoint"):
        (place,) = [place for new, place in rows.items() if new.startswith(thing)]
        assert re.search(r"`[\w/]+\.py`", place)


def modules() -> list[Path]:
    """Every module but the verbs' own, which are named for what is typed."""
    files = [file for name in PACKAGES for file in (REPOSITORY / name).rglob("*.py")]
    return [file for file in files if file.parent.name != "commands"]


def test_no_two_modules_have_one_name_but_by_convention():
    """Someone who has a name from a traceback or a review opens the right file at once."""
    names = Counter(file.stem for file in modules() if file.stem not in BY_CONVENTION)

    assert [name for name, times in names.items() if times > 1] == []


def test_no_two_public_classes_have_one_name():
    """One name for two things makes a reader look at the imports to know which is meant."""
    names = Counter(
        node.name
        for file in modules()
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [name for name, times in names.items() if times > 1] == []
