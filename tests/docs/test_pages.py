"""What can be said of the documentation within a second; `make docs` builds it and runs its examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import said
from tests.docs.blocks import Block, blocks, commands, words
from tests.docs.site import DOCS, ROOT, DocsFailed, pages

PAGE = """\
# Title

`changeover status --once` and `limits.max_queue_s`.

```sh
changeover publish out/1 \\
  --run r1          # a comment
# only a comment
```

=== "tab"

    ```python
    print("x")
    ```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "page.md"
    file.write_text(PAGE)
    return file


def test_blocks_are_found_with_their_kind_also_in_tabs(page: Path) -> None:
    assert [block.kind for block in blocks(page)] == ["sh", "python"]
    assert blocks(page)[1] == Block(page, "python", 'print("x")\n')


def test_a_command_goes_over_lines_and_stands_in_text_too(page: Path) -> None:
    found = [words(line) for line in commands(page)]
    assert ["changeover", "publish", "out/1", "--run", "r1"] in found
    assert ["changeover", "status", "--once"] in found


def test_what_is_no_option_is_told(page: Path) -> None:
    assert said.options_are_known([page]) == 1
    page.write_text("`limits.max_queues`")
    with pytest.raises(DocsFailed, match=r"max_queues. is no option"):
        said.options_are_known([page])


def test_what_is_no_metric_is_told(page: Path) -> None:
    page.write_text("`changeover_requests_total`, `changeover_training_*`, `changeover_ttft_seconds_bucket`")
    assert said.metrics_are_known([page]) == 3
    page.write_text("`changeover_request_total`")
    with pytest.raises(DocsFailed, match="changeover_request_total is no metric"):
        said.metrics_are_known([page])


def test_a_command_or_a_target_that_is_not_there_is_told(page: Path) -> None:
    page.write_text("`changeover statu`, `make nothing`, `python -m tests.none`, `make test`")
    with pytest.raises(DocsFailed) as failure:
        said.commands_exist([page])
    assert len(str(failure.value).splitlines()) == 3


def test_options_metrics_and_configurations_of_all_pages_exist(tmp_path: Path) -> None:
    every = pages()
    assert said.options_are_known(every) > 100
    assert said.metrics_are_known(every) > 10
    assert said.yaml_is_accepted(every, tmp_path) + said.training_yaml_is_known(every) > 3


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f" {page.name}\n" not in listed] == []
