"""The meaning of labels in a table: a number is never silently replaced by another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from packer._account import BadSamples
from packer._fields import Field
from packer._sources.base import NumberColumn, Source
from packer._sources.labels import LabelTexts, Meaning, in_known_classes, with_given_classes
from packer._sources.table_source import csv_source
from packer._sources.tables import TableOptions
from packer._table import Names
from packer.errors import SourceError
from tests.samples import Walked


def refuse(row: int | None, problem: str) -> SourceError:
    return SourceError(f"row {row}: {problem}")


def meaning(*texts: str, label_type: str | None = None, classes: list[str] | None = None) -> Meaning:
    return LabelTexts(texts, label_type, classes, refuse).meaning()


def listed(directory: Path, text: str | bytes, name: str = "labels.csv", **options: object) -> Source:
    table = directory / name
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    return csv_source(directory, table, TableOptions(**options))  # type: ignore[arg-type]


def spelt(number: int) -> st.SearchStrategy[str]:
    """Spellings of a whole number, as pandas, spreadsheets and people write them."""
    plain = [str(number), f"{number}.0", f"{float(number)}", f" {number}", f"{number}.000 ", f"{number}."]
    return st.sampled_from([*plain, f"+{number}"] if number >= 0 else plain)


@given(numbers=st.lists(st.integers(-1, 1000), min_size=1, max_size=40), data=st.data())
def test_whole_numbers_are_never_renumbered(numbers: list[int], data: st.DataObject) -> None:
    found = meaning(*(data.draw(spelt(number)) for number in numbers))
    assert found.labels.tolist() == numbers
    assert found.labels.dtype == np.int64
    assert found.label_type == "class"
    assert found.classes == [str(number) for number in range(max(numbers) + 1)]
    assert any("-1, which means unlabeled" in note for note in found.notes) == (-1 in numbers)


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), data=st.data())
def test_ints_are_kept(numbers: list[int], data: st.DataObject) -> None:
    exact = [str(number) if abs(number) > 2**50 else data.draw(spelt(number)) for number in numbers]
    found = meaning(*exact, label_type="int")
    assert (found.labels.tolist(), found.classes, found.label_type) == (numbers, [], "int")


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_floats_are_kept_to_the_bit(numbers: list[float]) -> None:
    found = meaning(*map(repr, numbers), label_type="float")
    assert found.labels.dtype == np.float64
    assert found.labels.tobytes() == np.array(numbers).tobytes()
    assert (found.classes, found.label_type) == ([], "float")


@given(st.lists(st.text(min_size=1, max_size=3).filter(str.strip), min_size=1, max_size=8))
def test_names_are_places_in_the_sorted_names(texts: list[str]) -> None:
    found = meaning(*texts, label_type="class")
    assert found.classes == sorted(set(texts))
    assert [found.classes[label] for label in found.labels.tolist()] == texts


def test_numbers_as_names_are_said_aloud() -> None:
    found = meaning("0", "2", "10", label_type="class")
    assert (found.classes, found.labels.tolist()) == (["0", "10", "2"], [0, 2, 1])
    assert any("the ids follow their alphabetical order" in note for note in found.notes)


@pytest.mark.parametrize(
    ("texts", "row", "said"),
    [
        (["0", "0.25"], 1, r"is not a class id.*label_type='float' .*regression.*label_type='class'"),
        (["0", "1e-3"], 1, "label_type='float'"),
        (["0", "nan"], 1, "label_type='float'"),
        (["3", "-2"], 1, r"ids are 0 or more, and -1 means unlabeled.*label_type='int'.*label_type='class'"),
        (["20231105", "3"], 0, r"too large for a class id in 2 rows.*label_type='class'.*label_type='int'"),
        (["3", "9" * 5000], 1, "too large for a class id"),
        (["010", "2"], 0, r"may be a number or a name.*label_type='class'.*label_type='int'"),
    ],
)
def test_where_numbers_may_mean_two_things_the_person_is_asked(texts: list[str], row: int, said: str) -> None:
    with pytest.raises(SourceError, match=rf"row {row}: .*{said}"):
        meaning(*texts)
    assert meaning(*texts, label_type="class").classes == sorted(texts)


@pytest.mark.parametrize(
    ("label_type", "text"),
    [("int", "0.5"), ("int", "x"), ("int", str(2**63)), ("int", "1_0"), ("int", ""), ("int", "٣"), ("int", "9" * 5000)]
    + [("float", text) for text in ("nan", "inf", "-Infinity", "x", "1e999", "0,5", "1_0.0", "")],
)
def test_what_is_no_such_number_is_refused(label_type: str, text: str) -> None:
    with pytest.raises(SourceError, match=rf"row 1: is not a .* number.*label_type='{label_type}'"):
        meaning("1", text, label_type=label_type)


def test_numbers_and_words_are_names_and_that_is_said() -> None:
    found = meaning("1", "2", "10", "cat")
    assert found.classes == ["1", "10", "2", "cat"]
    assert any("3 of 4 labels are numbers, but others are not, such as 'cat'" in note for note in found.notes)
    assert meaning("cat", "dog", "7").notes == []
    assert any("'nan' is read as a class name" in note for note in meaning("cat", "dog", "bird", "nan").notes)


@pytest.mark.parametrize("text", ["cat|dog", "[1, 2]", "1,2", "cat;dog", "cat dog"])
def test_lists_in_a_cell_are_said_aloud(text: str) -> None:
    notes = meaning("cat", "dog", text).notes
    assert any("may be lists of labels" in note and f"'{text}'" in note for note in notes)
    assert meaning("golden retriever", "tabby cat").notes == []


@pytest.mark.parametrize(
    "texts",
    [("cat dog", "cat"), ("cat dog", "dog bird"), ("cat dog", "dog cat"), ("1 5", "2 7"), ("a b c", "c", "d e")],
)
def test_words_that_come_again_may_be_lists(texts: tuple[str, ...]) -> None:
    assert any(f"'{texts[0]}'" in note and "may be lists of labels" in note for note in meaning(*texts).notes)


@pytest.mark.parametrize(
    "texts",
    [
        ("golden retriever", "curly retriever", "tabby cat"),
        ("tiger shark", "tiger cat", "polar bear"),
        ("tiger", "tiger shark", "polar bear", "grey whale", "sea lion", "hot dog", "killer bee"),
    ],
)
def test_names_of_several_words_are_no_lists(texts: tuple[str, ...]) -> None:
    assert meaning(*texts).notes == []


def test_ids_without_images_are_said_aloud() -> None:
    assert meaning("1", "2", "3").notes == ["classes without images, which keep their ids: 0"]
    (note,) = meaning("1", *["1100"] * 200).notes
    assert note == "classes without images, which keep their ids: 0, 2, 3, 4, 5, … (1,099)"
    assert meaning("0", "1", "1").notes == []
    assert meaning("1", classes=["0", "1"]).notes == []


def test_labels_that_are_no_utf_8_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"csv, line 3: the label 'caf\\udce9' is not UTF-8\. Save the file as UTF-8"):
        listed(tmp_path, b"path,label\na.jpg,tea\nb.jpg,caf\xe9\n")
    assert listed(tmp_path, "path,label\na.jpg,café\n").classes == ["café"]


def test_as_many_labels_as_rows_are_said_aloud() -> None:
    for texts in ([f"name {n}" for n in range(20)], [str(n) for n in range(20)]):
        assert any("all 20 labels are different" in note for note in meaning(*texts).notes)
        assert not any("labels are different" in note for note in meaning(*texts[:19]).notes)
    assert meaning(*(str(n / 7) for n in range(50)), label_type="float").notes == []


def test_spaces_around_a_name_are_said_aloud() -> None:
    assert any("' dog': the spaces" in note for note in meaning("dog", " dog").notes)


def test_given_classes_that_are_numbers_keep_their_ids() -> None:
    classes = [str(n) for n in range(12)]
    assert meaning("7.0", "-1", "0", classes=classes).labels.tolist() == [7, -1, 0]
    with pytest.raises(SourceError, match="row 1: is not in the given class list, whose last id is 11"):
        meaning("0", "12", classes=classes)
    by_spelling = ["0", "1", "10", "2"]
    assert meaning("2", "10", classes=by_spelling).labels.tolist() == [3, 2]
    with pytest.raises(SourceError, match=r"2 of its labels are not in the given class list: '0', '1'"):
        meaning("0", "1", classes=["cat"])


def test_rows_without_a_label(tmp_path: Path) -> None:
    text = "path,label\na.jpg,cat\nb.jpg,\nc.jpg\nd.jpg,dog\n"
    with pytest.raises(SourceError, match=r"line 3: the label is missing\. Pass unlabeled=True"):
        listed(tmp_path, text)
    source = listed(tmp_path, text, unlabeled=True)
    assert (source.labels.tolist(), source.classes) == ([0, -1, -1, 1], ["cat", "dog"])
    assert "2 of 4 rows have no label, and get the label -1" in source.notes
    numbers = listed(tmp_path, "path,label\na.jpg,3.0\nb.jpg,\n", unlabeled=True)
    assert (numbers.labels.tolist(), len(numbers.classes)) == ([3, -1], 4)
    none = listed(tmp_path, "path,label\na.jpg,\n", unlabeled=True)
    assert (none.labels.tolist(), none.classes) == ([-1], [])


def test_an_error_names_the_line_also_after_quoted_newlines(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"labels\.csv, line 5: the label '0\.25' is not a class id"):
        listed(tmp_path, 'path,label\n\n"new\nline.jpg",1\nb.jpg,0.25\n')


def test_columns_that_are_not_used_are_named(tmp_path: Path) -> None:
    source = listed(tmp_path, "path,bbox,label,caption\na.jpg,1 2 3 4,x,a dog\n")
    assert "not looked at: 2 columns (bbox, caption): no --column reads it" in source.remarks()
    assert listed(tmp_path, "path,label\na.jpg,x\n").notes == []


def test_tsv_files_are_separated_by_tabs(tmp_path: Path) -> None:
    text = "path\tlabel\na,b.jpg\tx\n"
    assert list(listed(tmp_path, text, "labels.TSV").names) == ["a,b.jpg"]
    assert list(listed(tmp_path, text.replace("\t", ";"), "labels.tsv", delimiter=";").names) == ["a,b.jpg"]
    with pytest.raises(SourceError, match=r"if they are separated by ',', pass delimiter=','"):
        listed(tmp_path, "path,label\na.jpg,x\n", "labels.tsv")


def test_spellings_of_files(tmp_path: Path) -> None:
    for text in (
        b"\xef\xbb\xbfpath,label\r\na.jpg,1.0\r\nb.jpg,2.0\r\n\r\n\r\n",
        b"path,label\na.jpg,1\nb.jpg,2\n,\n , \n\n",
        b'"path","label"\n"a.jpg","1"\n"b.jpg","2"',
        b"path,label,\na.jpg,1,\nb.jpg,2,\n",
    ):
        assert listed(tmp_path, text).labels.tolist() == [1, 2]
    text = "path,label\na.jpg,1\nb.jpg,2\n"
    for encoding in ("utf-16", "utf-32"):
        assert listed(tmp_path, text.encode(encoding)).labels.tolist() == [1, 2]
    with pytest.raises(SourceError, match="UTF-16 without a byte order mark"):
        listed(tmp_path, text.encode("utf-16-le"))


def test_a_label_of_many_digits_that_is_no_number_takes_no_time() -> None:
    """A regular expression that backtracks over all ways to split the digits would take minutes."""
    digits = "9" * 300_000
    for text in (f"{digits}x", f"{digits}.{digits}x", f"{digits}e{digits}x", f".{digits}x"):
        assert meaning(text, "cat").classes == sorted([text, "cat"])
        with pytest.raises(SourceError, match="is not a finite number"):
            meaning(text, label_type="float")


class LookedUp(Names):
    """Names that count look-ups of single names."""

    lookups = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.lookups += 1
        return super().__getitem__(index)


def of_breeds(directory: Path, breeds: list[int]) -> Source:
    names = Names.of(f"{number}.jpg" for number in range(len(breeds)))
    counted = LookedUp(names.blob, names.ends)
    source = Source("table", directory, counted, np.zeros(len(breeds), np.int64), ["a"])
    field = Field("breed", "class", classes=("pug", "tabby"))
    return source.having(NumberColumn(field, np.array(breeds, np.int64), np.zeros(len(breeds), bool)))


def with_pugs_only(source: Source, bad: BadSamples) -> Source:
    pack_field = Field("breed", "class", classes=("beagle", "pug"))
    return with_given_classes(source, [pack_field], Path("x.lmdb"), bad, remedy="Rename them.")


def test_the_first_row_with_a_class_that_a_pack_lacks_ends_the_look_at_the_rows(tmp_path: Path) -> None:
    source = of_breeds(tmp_path, [0, *[1] * 1000])
    with pytest.raises(SourceError, match=r"1.jpg: field 'breed': tabby is not a class in x.lmdb"):
        with_pugs_only(source, BadSamples())
    assert isinstance(source.names, LookedUp)
    assert source.names.lookups < 10


def test_rows_with_a_class_that_a_pack_lacks_are_left_out(tmp_path: Path) -> None:
    bad = BadSamples(skip=True)
    source = with_pugs_only(of_breeds(tmp_path, [0, 1, 0, 1]), bad)
    assert list(source.names) == ["0.jpg", "2.jpg"]
    assert [source.columns[0].get(row) for row in range(2)] == [1, 1]
    assert [one["name"] for one in bad.found] == ["1.jpg", "3.jpg"]
    assert bad.found[0]["reason"] == (
        "1.jpg: field 'breed': tabby is not a class in x.lmdb; all unknown classes: tabby. Rename them."
    )


def test_a_class_list_is_walked_through_once_however_many_classes_are_there() -> None:
    classes, bad = Walked(map(str, range(100))), BadSamples(skip=True)
    listed = {str(number): [f"{number}/a.jpg"] for number in range(50, 150)}
    known = in_known_classes("root", listed, classes, bad)
    assert [*known] == [str(number) for number in range(50, 100)]
    assert [one["name"] for one in bad.found] == [f"{number}/a.jpg" for number in range(100, 150)]
    assert classes.walks == 1
