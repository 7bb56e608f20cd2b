"""The tree that CONTRIBUTING.md and README.md draw is the tree there is."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

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


#: What CONTRIBUTING.md must tell the place of.
THINGS = (
    "metric", "subcommand", "setting", "setting fixed per epoch", "benchmark",
    "randomizer with its privacy bound", "release kind", "refusal of a submission",
    "refusal when counting", "endpoint",
)  # fmt: skip


def places() -> dict[str, str]:
    """The rows of "Where things go"."""
    return dict(re.findall(r"^\| ([a-z][^|]+) \| (.+) \|$", CONTRIBUTING, re.MULTILINE))


@pytest.mark.parametrize("thing", THINGS)
def test_contributing_tells_where_each_kind_of_thing_goes_in_one_line(thing):
    """Each row names files that exist (`test_links_and_named_files_exist`)."""
    assert re.search(r"`[\w/]+\.py`", places()[thing])


@pytest.mark.parametrize("thing", [thing for thing in THINGS if thing != "benchmark"])
def test_the_files_of_a_row_have_the_names_that_it_tells(thing):
    """`EpochPlan` may be renamed or moved, and its row with it."""
    place = places()[thing]
    files = [REPOSITORY / path for path in re.findall(r"`(\w+/[\w/]+\.(?:py|js))`", place)]
    text = "\n".join(file.read_text() for file in files)

    names = set(re.findall(r"`(\w+)`", place)) - {"run", "add_arguments"}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


def modules() -> list[Path]:
    """Every module except the subcommands, whose files have the names that users type."""
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


def imported_modules(*, for_types: bool) -> list[tuple[str, str]]:
    """(who imports, what) for every import of one of our modules by another, by full name.

    `for_types`: those that only a type checker sees, too.
    """
    files = [file for name in PACKAGES for file in (REPOSITORY / name).rglob("*.py")]
    files += (REPOSITORY / "src/blendstream").glob("*.py")
    names = {file: ".".join(["blendstream", *_place(file)]) for file in files}
    known = set(names.values())
    found = []
    for file, name in names.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        unseen = [] if for_types else [node for node in ast.walk(tree) if _is_for_types(node)]
        passed = {inner for node in unseen for inner in ast.walk(node)}
        for node in (node for node in ast.walk(tree) if node not in passed):
            if isinstance(node, ast.Import):
                found += [(name, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                found += [(name, made if made in known else str(node.module)) for made in whole]
    return [(who, what) for who, what in found if what in known]


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _place(file: Path) -> list[str]:
    place = file.relative_to(REPOSITORY).with_suffix("").parts
    kept = place[2:] if place[0] == "src" else place
    return [part for part in kept if part != "__init__"]


def doors() -> dict[str, list[str]]:
    """Each room's full name, and what its `__init__` lists."""
    listed = {}
    for top in ("blender", "streams", "agents"):
        for file in (REPOSITORY / top).rglob("__init__.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            if file.parent != REPOSITORY / top:
                listed[".".join(["blendstream", *_place(file)])] = next(
                    (
                        ast.literal_eval(node.value)
                        for node in tree.body
                        if isinstance(node, ast.Assign)
                        and ast.unparse(node.targets[0]) == "__all__"
                    ),
                    [],
                )
    return listed


def test_a_room_is_entered_by_what_its_init_lists():
    """What a room lists is what others rely on: everything else may change without a look around.

    Rooms within a room may use each other's modules as the contracts allow.
    """
    rooms = {room: names for room, names in doors().items() if room.count(".") == 2}
    wrong = [
        (who, what)
        for who, what in imported_modules(for_types=True)
        for room, names in rooms.items()
        if what.startswith(f"{room}.")
        and not f"{who}.".startswith(f"{room}.")
        and what.removeprefix(f"{room}.").split(".")[0] not in names
    ]

    assert len(rooms) > 15
    assert wrong == []


def test_what_a_room_lists_is_there():
    """A name that went leaves a promise behind."""
    for room, names in doors().items():
        folder = REPOSITORY.joinpath(*room.split(".")[1:])
        text = (folder / "__init__.py").read_text(encoding="utf-8")
        for name in names:
            module = (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
            assert module or len(re.findall(rf"\b{name}\b", text)) > 1, (room, name)


def test_no_two_rooms_import_each_other():
    """Two that do are one room with a wall in it: neither can be read, tested or moved alone."""
    packages = set(doors()) | {f"blendstream.{name}" for name in PACKAGES}

    def room_of(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    pairs = {(room_of(who), room_of(what)) for who, what in imported_modules(for_types=False)}
    both = {pair for pair in pairs if pair[0] < pair[1] and pair[::-1] in pairs}

    assert len(pairs) > 50
    assert both == set()
