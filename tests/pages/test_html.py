"""Pages as HTML: links lead to HTML, headings have anchors, studies have figures as SVG."""

from pathlib import Path

from pages import html
from pages.html import as_html
from tests.report import made


def test_links_and_anchors_lead_where_markdown_has_them() -> None:
    page = as_html(
        "# The paper's protocol\n\n[tune](../tune.md#a-table) [out](https://example.org/a.md)\n\n"
        "| a | b |\n|---|---:|\n| one | 2 |\n\n![gains](when.png)\n"
    )
    assert '<h1 id="the-papers-protocol">' in page
    assert 'href="../tune.html#a-table"' in page
    assert 'href="https://example.org/a.md"' in page
    assert '<td style="text-align:left; white-space:normal; min-width:6rem">one</td>' in page
    assert '<td style="text-align:right">2</td>' in page
    assert 'src="when.svg"' in page


def test_a_committed_study_becomes_a_page_with_figures_as_svg(tmp_path: Path) -> None:
    study = tmp_path / "docs" / "study"
    study.mkdir(parents=True)
    made.results([made.setting()]).save(study / "results.json")
    page = html._study(study / "results.json", tmp_path / "out")
    assert page.name == "index.html"
    assert (tmp_path / "out" / "statistical-convergence.svg").is_file()
    assert "Overall comparison" in page.read_text()


def test_a_study_of_another_form_is_its_markdown(tmp_path: Path) -> None:
    """As that of what leaks; one such study must not keep the others from being drawn."""
    study = tmp_path / "leaks"
    study.mkdir()
    (study / "results.json").write_text('{"attacks": {}}')
    (study / "results.md").write_text("# What leaks\n")
    page = html._study(study / "results.json", tmp_path / "out")
    assert page == tmp_path / "out" / "index.html"
    assert "What leaks</h1>" in page.read_text()


def test_a_link_to_a_study_leads_to_its_page() -> None:
    page = as_html("[all](wical/table1/results.md#rooms), [here](results.md), [no](my-results.md)")
    assert 'href="wical/table1/index.html#rooms"' in page
    assert 'href="index.html"' in page
    assert 'href="my-results.html"' in page
