//! The results as JUnit XML, which most systems for continuous integration read.

use std::io;

use eno_nbi_crds::VerificationResult;
use eno_schemas::ProbeOutcome;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::print::{outcome, remark};
use super::{Tested, Verdict, fails};

/// The name of the one test case of an object without an answer.
const ANSWER: &str = "answer";

/// How a test case that did not pass ended, with its message; `None`: it passed.
type End = Option<(&'static str, String)>;

/// A test suite for each object, with a test case for each result.
pub(crate) fn junit(tests: &[Tested]) -> io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let suites = writer.create_element("testsuites").with_attribute(("name", "eno connectivity test"));
    suites.write_inner_content(|writer| tests.iter().try_for_each(|tested| suite(writer, tested)))?;
    let text = String::from_utf8(writer.into_inner()).map_err(io::Error::other)?;
    Ok(text)
}

/// The test suite of an object.
fn suite(writer: &mut Writer<Vec<u8>>, tested: &Tested) -> io::Result<()> {
    let cases = cases(tested);
    let count = |what: &str| cases.iter().filter(|(_, end)| is(end, what)).count().to_string();
    let target = valid(&tested.target);
    let suite = writer.create_element("testsuite").with_attributes([
        ("name", &*target),
        ("tests", &*cases.len().to_string()),
        ("failures", &*count("failure")),
        ("errors", &*count("error")),
        ("skipped", &*count("skipped")),
    ]);
    suite.write_inner_content(|writer| {
        for (name, end) in &cases {
            let name = valid(name);
            let case = writer.create_element("testcase");
            let case = case.with_attributes([("classname", &*target), ("name", &*name)]);
            match end {
                None => _ = case.write_empty()?,
                Some((what, message)) => {
                    case.write_inner_content(|writer| {
                        let end = writer.create_element(*what);
                        end.with_attribute(("message", &*valid(message))).write_empty().map(|_| ())
                    })?;
                }
            }
        }
        if !tested.message.is_empty() {
            let message = valid(&tested.message);
            writer.create_element("system-out").write_text_content(BytesText::new(&message))?;
        }
        Ok(())
    })?;
    Ok(())
}

fn is(end: &End, what: &str) -> bool {
    end.as_ref().is_some_and(|(one, _)| *one == what)
}

/// The test cases of an object: each with its name and its end.
fn cases(tested: &Tested) -> Vec<(String, End)> {
    let mut cases: Vec<(String, End)> = tested.results.iter().map(|one| (name(one), end(one))).collect();
    match tested.verdict {
        Verdict::NotProbed => cases.push((ANSWER.into(), Some(("skipped", tested.message.clone())))),
        Verdict::NoAnswer | Verdict::Stopped => {
            cases.push((ANSWER.into(), Some(("error", tested.message.clone()))));
        }
        Verdict::Unasked if !tested.message.is_empty() => {
            cases.push(("isolation".into(), Some(("skipped", tested.message.clone()))));
        }
        Verdict::Passed | Verdict::Failed | Verdict::Unasked => {}
    }
    cases
}

fn name(result: &VerificationResult) -> String {
    let VerificationResult { from, to, vlan, other, .. } = result;
    let to = to.as_deref().unwrap_or("nobody");
    match other {
        Some(other) => format!("{from} to {to} from VLAN {vlan} to VLAN {other}"),
        None => format!("{from} to {to} on VLAN {vlan}"),
    }
}

fn end(result: &VerificationResult) -> End {
    let kind = match result.outcome {
        failing if fails(failing) => "failure",
        ProbeOutcome::Unasked => "skipped",
        _ => return None,
    };
    let remark = remark(result);
    let what = outcome(result.outcome);
    Some((kind, if remark.is_empty() { what.to_owned() } else { format!("{what}: {remark}") }))
}

/// A text without the characters that XML has not, not even escaped.
fn valid(text: &str) -> String {
    let is_valid = |char: char| matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    text.chars().map(|char| if is_valid(char) { char } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::tested;
    use super::*;

    #[test]
    fn each_result_is_a_test_case() {
        let mut tested = tested(&[ProbeOutcome::Lost, ProbeOutcome::Unasked, ProbeOutcome::Passed]);
        tested.results[0].to = Some("<&\">\u{1b}]0;x\u{7}\u{ffff}".into());
        let not_probed = Tested::unanswered("ConnectionPoint/cp".into(), Verdict::NotProbed, "nothing");
        let silent = Tested::unanswered("ConnectionPoint/dp".into(), Verdict::NoAnswer, "too late");
        let text = junit(&[tested, not_probed, silent]).expect("XML");
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="eno connectivity test">
  <testsuite name="L2ServiceAttachment/ns/a" tests="3" failures="1" errors="0" skipped="1">
    <testcase classname="L2ServiceAttachment/ns/a" name="node1 to &lt;&amp;&quot;&gt;�]0;x�� on VLAN 100">
      <failure message="lost"/>
    </testcase>
    <testcase classname="L2ServiceAttachment/ns/a" name="node1 to node2 on VLAN 100">
      <skipped message="unasked: busy"/>
    </testcase>
    <testcase classname="L2ServiceAttachment/ns/a" name="node1 to node2 on VLAN 100"/>
    <system-out>leaf1 Ethernet1</system-out>
  </testsuite>
  <testsuite name="ConnectionPoint/cp" tests="1" failures="0" errors="0" skipped="1">
    <testcase classname="ConnectionPoint/cp" name="answer">
      <skipped message="nothing"/>
    </testcase>
    <system-out>nothing</system-out>
  </testsuite>
  <testsuite name="ConnectionPoint/dp" tests="1" failures="0" errors="1" skipped="0">
    <testcase classname="ConnectionPoint/dp" name="answer">
      <error message="too late"/>
    </testcase>
    <system-out>too late</system-out>
  </testsuite>
</testsuites>"#;
        assert_eq!(text, expected);
    }
}
