"""Documents on the list of forgotten ones are never used again, and the rest of the work is not repeated."""

import pytest

from storage import paths
from storage.errors import InputError
from storage.hashing import document_id
from storage.records.forgotten import Forgotten, read_forgotten, write_forgotten
from support.sample_room import lines, story


def test_every_copy_is_excluded_without_its_text_and_other_files_are_not_indexed_again(workspace):
    texts = [story(seed) for seed in range(6)]
    workspace.add("a.jsonl", lines([*texts[:4], texts[1]]))
    workspace.add("b.jsonl", lines(texts[4:]))
    workspace.run(near={"enabled": False})
    indexed, document = workspace.markers("index"), document_id(texts[1])
    write_forgotten(workspace.root / paths.FORGOTTEN, [Forgotten(document, "2026-01-02", 'a "why", with a comma')])
    workspace.run(near={"enabled": False})
    left_out = [row for row in workspace.rows(paths.EXCLUDED) if row["document_id"] == document]
    assert [(row["row"], row["reason"], row["text"]) for row in left_out] == [
        (2, "forgotten", None),
        (5, "forgotten", None),
    ]
    assert left_out[0]["detail"] == '2026-01-02: a "why", with a comma'
    assert document not in {row["document_id"] for row in workspace.rows(paths.DOCUMENTS)}
    assert document not in {row["document_id"] for row in workspace.rows(paths.SENTENCES)}
    assert len(workspace.rows(paths.DOCUMENTS)) == 5
    assert workspace.markers("index") == indexed


@pytest.mark.parametrize("content", ["", "id\n", "document_id,date,why\nabc,2026-01-02,short id\n"])
def test_a_damaged_list_is_refused_rather_than_taken_as_shorter(tmp_path, content):
    path = tmp_path / paths.FORGOTTEN
    path.write_text(content)
    with pytest.raises(InputError, match=r"forgotten\.csv"):
        read_forgotten(path)
