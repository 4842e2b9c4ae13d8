//! The results for people.

use eno_nbi_crds::VerificationResult;
use eno_schemas::ProbeOutcome;

use super::{Tested, Verdict, fails};
use crate::inspect::output::table;

/// Shows tests. `of_all`: with a summary.
pub(crate) fn print(tests: &[Tested], of_all: bool) {
    for tested in tests {
        crate::outln!("{}: {}\n", tested.target, summary(tested));
        table(["FROM", "TO", "VLAN", "RESULT", ""], tested.results.iter().map(row));
        if let Some(left_out) = tested.left_out {
            crate::outln!("… and {left_out} more results.\n");
        }
        if !tested.results.is_empty() && !tested.message.is_empty() {
            crate::outln!("{}\n", tested.message);
        }
    }
    if of_all {
        table(["OBJECT", "RESULT"], tests.iter().map(|one| [one.target.clone(), summary(one)]));
    }
}

/// What came of a test, in a few words.
fn summary(tested: &Tested) -> String {
    let count = |is: fn(ProbeOutcome) -> bool| tested.results.iter().filter(|one| is(one.outcome)).count();
    let left_out = tested.left_out.and_then(|left_out| usize::try_from(left_out).ok()).unwrap_or_default();
    let all = tested.results.len() + left_out;
    match tested.verdict {
        Verdict::Passed => format!("all {all} passed"),
        Verdict::Failed => format!("{} of {all} failed", count(fails)),
        Verdict::Unasked => match count(|one| one == ProbeOutcome::Unasked) {
            0 => "not all was asked".into(),
            unasked => format!("{unasked} of {all} were not asked"),
        },
        Verdict::NotProbed => format!("not probed: {}", tested.message),
        Verdict::NoAnswer => format!("no answer: {}", tested.message),
        Verdict::Stopped => "stopped".into(),
    }
}

fn row(result: &VerificationResult) -> [String; 5] {
    let vlan = match result.other {
        Some(other) => format!("{} → {other}", result.vlan),
        None => result.vlan.to_string(),
    };
    let to = result.to.clone().unwrap_or_else(|| "-".into());
    [result.from.clone(), to, vlan, outcome(result.outcome).into(), remark(result)]
}

/// The word of an outcome.
pub(super) fn outcome(outcome: ProbeOutcome) -> &'static str {
    match outcome {
        ProbeOutcome::Lost => "lost",
        ProbeOutcome::Leaking => "leaking",
        ProbeOutcome::TooBig => "too-big",
        ProbeOutcome::Silent => "silent",
        ProbeOutcome::Unasked => "unasked",
        ProbeOutcome::Passed => "passed",
        ProbeOutcome::Answered => "answered",
        ProbeOutcome::Isolated => "isolated",
    }
}

/// Why nobody was asked, or who answered for a gateway.
pub(super) fn remark(result: &VerificationResult) -> String {
    match &result.reason {
        Some(reason) => reason.clone(),
        None => result.macs.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{result, tested};
    use super::*;

    #[test]
    fn summary_counts_what_failed() {
        use ProbeOutcome::{Lost, Passed, Silent, Unasked};
        for (outcomes, text) in [
            (&[Passed, Passed][..], "all 2 passed"),
            (&[Lost, Silent, Unasked, Passed], "2 of 4 failed"),
            (&[Unasked, Passed], "1 of 2 were not asked"),
        ] {
            assert_eq!(summary(&tested(outcomes)), text);
        }
        let cut = Tested { left_out: Some(7), ..tested(&[Passed]) };
        assert_eq!(summary(&cut), "all 8 passed");
        let late = Tested::unanswered("x".into(), Verdict::NoAnswer, "no agent is alive");
        assert_eq!(summary(&late), "no answer: no agent is alive");
    }

    #[test]
    fn rows_name_both_vlans_and_the_reason() {
        let unasked = VerificationResult { to: None, ..result(ProbeOutcome::Unasked) };
        assert_eq!(row(&unasked), ["node1", "-", "100", "unasked", "busy"]);
        let isolated = VerificationResult { other: Some(101), ..result(ProbeOutcome::Isolated) };
        assert_eq!(row(&isolated), ["node1", "node2", "100 → 101", "isolated", ""]);
        let macs = vec!["02:00:00:00:00:01".to_owned()];
        let answered = VerificationResult { macs, ..result(ProbeOutcome::Answered) };
        assert_eq!(row(&answered)[3..], ["answered", "02:00:00:00:00:01"]);
    }
}
