//! Relative links and their anchors. Links to other sites are not tried.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{pages, read, root};

/// The destinations of the links and pictures of a page.
pub fn targets(text: &str) -> Vec<String> {
    let destination = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    };
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .filter_map(destination)
        .filter(|url| !url.is_empty())
        .collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut heading) = (BTreeSet::new(), None);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let text = heading.take().unwrap_or_default().to_lowercase();
                anchors.insert(text.chars().filter(kept).collect::<String>().replace(' ', "-"));
            }
            _ => {}
        }
    }
    anchors
}

/// All Markdown files that git tracks.
fn documents() -> Vec<PathBuf> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "*.md"]).output().expect("git");
    let listed = String::from_utf8(output.stdout).expect("UTF-8");
    let documents: Vec<_> = listed.lines().map(|name| root().join(name)).collect();
    assert!(!documents.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    documents
}

/// What is wrong with a link; `None`: it leads somewhere.
fn problem(page: &Path, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { page.to_owned() } else { page.with_file_name(path) };
    let book = root().join("docs/src");
    let Ok(file) = file.canonicalize() else { return Some("there is no such file".to_owned()) };
    if page.starts_with(&book) && !file.starts_with(&book) {
        return Some("it leaves the book, so the rendered book lacks it".to_owned());
    }
    let has_anchor =
        || anchors(&if path.is_empty() { text.to_owned() } else { read(&file) }).contains(anchor);
    (!anchor.is_empty() && !has_anchor()).then(|| "there is no such heading".to_owned())
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for page in documents() {
        let text = read(&page);
        for target in targets(&text) {
            broken.extend(
                problem(&page, &text, &target).map(|why| format!("{}: {target}: {why}", page.display())),
            );
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn summary_names_every_page() {
    let named: BTreeSet<_> = pages().into_iter().collect();
    let source = root().join("docs/src");
    let is_page = |path: &PathBuf| path.starts_with(&source) && !path.ends_with("SUMMARY.md");
    let left_out: Vec<_> =
        documents().into_iter().filter(is_page).filter(|page| !named.contains(page)).collect();
    assert!(left_out.is_empty(), "not in docs/src/SUMMARY.md: {left_out:?}");
}
