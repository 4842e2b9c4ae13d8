//! New probes on request: what `eno connectivity test` asks, and what comes of it.
//!
//! A request is an annotation with a fresh nonce. No test leaves its request on an object, also when a signal ends it, and
//! none takes another's request away: the API server removes the annotation only if it is still the one that was put there.

pub(crate) mod ask;
pub(crate) mod junit;
pub(crate) mod neighbour;
pub(crate) mod print;
mod watched;

use eno_nbi_crds::{Verification, VerificationResult};
use eno_schemas::ProbeOutcome;
use serde::Serialize;

/// What came of the test of one object. This is its JSON, which programs read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tested {
    /// `KIND/NAME` or `KIND/NAMESPACE/NAME`.
    pub target: String,
    /// The answer is there, with a result of each node that probes.
    pub complete: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found. What failed comes first.
    pub results: Vec<VerificationResult>,
    /// How many results are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<i64>,
    /// Which ports and links explain what failed; or why there is no answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The verdict of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Everybody who was asked answered as wanted, and everybody was asked.
    Passed,
    /// Something was lost, silent, too big or leaking.
    Failed,
    /// Nothing failed, but not all could be asked.
    Unasked,
    /// Nothing can be probed there.
    NotProbed,
    /// The request was refused, or not answered in time.
    NoAnswer,
    /// A signal ended the test.
    Stopped,
}

impl Tested {
    /// A test with an answer. `message`: what the object says of its packets.
    pub(crate) fn answered(target: String, answer: Verification, message: String) -> Self {
        let verdict = Verdict::of(&answer.results);
        let Verification { complete, results, left_out, .. } = answer;
        let message = if verdict == Verdict::Failed { message } else { String::new() };
        Self { target, complete, verdict, results, left_out, message }
    }

    /// A test without an answer, for this reason.
    pub(crate) fn unanswered(target: String, verdict: Verdict, message: impl Into<String>) -> Self {
        Self {
            target,
            complete: false,
            verdict,
            results: Vec::new(),
            left_out: None,
            message: message.into(),
        }
    }

    /// Notes that the VLANs of two objects were to be compared. Without such a result, nothing is proven.
    pub(crate) fn expect_crossed(&mut self) {
        let is_crossed = |one: &VerificationResult| one.other.is_some();
        if self.verdict == Verdict::Passed && !self.results.iter().any(is_crossed) {
            self.verdict = Verdict::Unasked;
            "no VLAN of the one was compared with another VLAN of the other: they need different VLANs and confirmed \
             paths on one network of a ConnectionPoint with two nodes"
                .clone_into(&mut self.message);
        }
    }
}

impl Verdict {
    /// The verdict on results.
    fn of(results: &[VerificationResult]) -> Self {
        if results.iter().any(|one| fails(one.outcome)) {
            Self::Failed
        } else if results.iter().any(|one| one.outcome == ProbeOutcome::Unasked) {
            Self::Unasked
        } else {
            Self::Passed
        }
    }
}

/// True for what must not be.
pub(crate) fn fails(outcome: ProbeOutcome) -> bool {
    match outcome {
        ProbeOutcome::Lost | ProbeOutcome::Leaking | ProbeOutcome::TooBig | ProbeOutcome::Silent => true,
        ProbeOutcome::Unasked | ProbeOutcome::Passed | ProbeOutcome::Answered | ProbeOutcome::Isolated => {
            false
        }
    }
}

/// The exit code of tests: 0 all passed, 1 something failed, 2 something was not asked, 130 a signal ended it. `of_all`:
/// what can't be probed at all is passed over, unless it is everything.
pub(crate) fn exit_code(tests: &[Tested], of_all: bool) -> u8 {
    let has = |verdict| tests.iter().any(|one| one.verdict == verdict);
    if has(Verdict::Stopped) {
        return 130;
    }
    if has(Verdict::Failed) {
        return 1;
    }
    let passed_over = of_all && tests.iter().any(|one| one.verdict != Verdict::NotProbed);
    let is_unclear =
        has(Verdict::Unasked) || has(Verdict::NoAnswer) || (has(Verdict::NotProbed) && !passed_over);
    if is_unclear || tests.is_empty() { 2 } else { 0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A result with this outcome.
    pub(crate) fn result(outcome: ProbeOutcome) -> VerificationResult {
        let reason = (outcome == ProbeOutcome::Unasked).then(|| "busy".to_owned());
        VerificationResult {
            from: "node1".into(),
            to: Some("node2".into()),
            vlan: 100,
            other: None,
            outcome,
            macs: Vec::new(),
            reason,
        }
    }

    /// A test with these outcomes.
    pub(crate) fn tested(outcomes: &[ProbeOutcome]) -> Tested {
        let results = outcomes.iter().copied().map(result).collect();
        let answer = Verification { nonce: "n".into(), complete: true, results, left_out: None };
        Tested::answered("L2ServiceAttachment/ns/a".into(), answer, "leaf1 Ethernet1".into())
    }

    fn unanswered(verdict: Verdict) -> Tested {
        Tested::unanswered("ConnectionPoint/cp".into(), verdict, "why")
    }

    #[test]
    fn verdict_follows_from_the_worst_outcome() {
        use ProbeOutcome::{Answered, Isolated, Leaking, Lost, Passed, Silent, TooBig, Unasked};
        for (outcomes, verdict) in [
            (&[Passed, Answered, Isolated][..], Verdict::Passed),
            (&[Unasked, Passed], Verdict::Unasked),
            (&[Lost, Unasked], Verdict::Failed),
            (&[Silent], Verdict::Failed),
            (&[TooBig], Verdict::Failed),
            (&[Leaking], Verdict::Failed),
        ] {
            let tested = tested(outcomes);
            assert_eq!(tested.verdict, verdict, "{outcomes:?}");
            assert_eq!(tested.message.is_empty(), verdict != Verdict::Failed, "{outcomes:?}");
        }
    }

    #[test]
    fn exit_code_is_that_of_the_worst_test() {
        let passed = || tested(&[ProbeOutcome::Passed]);
        let failed = || tested(&[ProbeOutcome::Lost]);
        let unasked = || tested(&[ProbeOutcome::Unasked]);
        for (tests, of_one, of_all) in [
            (vec![], 2, 2),
            (vec![passed()], 0, 0),
            (vec![passed(), failed()], 1, 1),
            (vec![failed(), unasked()], 1, 1),
            (vec![passed(), unasked()], 2, 2),
            (vec![passed(), unanswered(Verdict::NoAnswer)], 2, 2),
            (vec![passed(), unanswered(Verdict::NotProbed)], 2, 0),
            (vec![unanswered(Verdict::NotProbed)], 2, 2),
            (vec![failed(), unanswered(Verdict::Stopped)], 130, 130),
        ] {
            assert_eq!((exit_code(&tests, false), exit_code(&tests, true)), (of_one, of_all), "{tests:?}");
        }
    }

    #[test]
    fn isolation_needs_a_result_across_vlans() {
        let mut passed = tested(&[ProbeOutcome::Passed]);
        passed.expect_crossed();
        assert!(passed.verdict == Verdict::Unasked && passed.message.contains("no VLAN"), "{passed:?}");
        let mut isolated = tested(&[ProbeOutcome::Isolated]);
        isolated.results[0].other = Some(101);
        isolated.expect_crossed();
        assert_eq!((isolated.verdict, &*isolated.message), (Verdict::Passed, ""));
        let mut lost = tested(&[ProbeOutcome::Lost]);
        lost.expect_crossed();
        assert_eq!((lost.verdict, &*lost.message), (Verdict::Failed, "leaf1 Ethernet1"));
    }

    #[test]
    fn json_has_the_documented_shape() {
        let json = serde_json::to_value(tested(&[ProbeOutcome::Lost])).expect("JSON");
        let result = serde_json::json!({ "from": "node1", "to": "node2", "vlan": 100, "outcome": "lost" });
        let expected = serde_json::json!({
            "target": "L2ServiceAttachment/ns/a", "complete": true, "verdict": "failed", "results": [result],
            "message": "leaf1 Ethernet1",
        });
        assert_eq!(json, expected);
    }
}
