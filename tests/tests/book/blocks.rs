//! The console blocks of a page.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// A command of a console block, and the lines that it prints according to the page.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the page.
    pub line: usize,
    /// The command.
    pub command: String,
    /// Its output.
    pub output: Vec<String>,
}

/// The steps of a page that a sandbox can run. Blocks behind the comment `not run: REASON` are left out.
pub fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut block, mut is_left_out): (Option<Range<usize>>, bool) = (None, false);
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Html(html) => is_left_out |= html.starts_with("<!-- not run: "),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) if &*language == "console" => {
                block = (!std::mem::take(&mut is_left_out)).then_some(range);
            }
            Event::Text(content) if block.is_some() => {
                let first = text[..range.start].lines().count() + 1;
                read(&content, first, &mut steps);
            }
            Event::End(TagEnd::CodeBlock) => block = None,
            Event::Start(Tag::Paragraph | Tag::CodeBlock(_)) => is_left_out = false,
            _ => {}
        }
    }
    steps
}

fn read(content: &str, first: usize, steps: &mut Vec<Step>) {
    let start = steps.len();
    for (line, text) in (first..).zip(content.lines()) {
        match text.strip_prefix("$ ") {
            Some(command) => steps.push(Step { line, command: command.to_owned(), output: Vec::new() }),
            None if steps.len() > start => {
                if let Some(step) = steps.last_mut() {
                    step.output.push(text.to_owned());
                }
            }
            None => panic!("line {line}: a console block begins with a command: {text}"),
        }
    }
}

#[test]
fn blocks_have_commands_with_their_output() {
    let page = "# A\n```console\n$ a b\nc\n\nd\n$ e\n```\n\n<!-- not run: it waits -->\n```console\n$ f\n```\n```text\n$ g\n```\n";
    let step = |line, command: &str, output: &[&str]| Step {
        line,
        command: command.into(),
        output: output.iter().map(|line| (*line).into()).collect(),
    };
    assert_eq!(steps(page), [step(3, "a b", &["c", "", "d"]), step(7, "e", &[])]);
}
