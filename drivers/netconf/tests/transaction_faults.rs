//! A session that breaks at any request, and devices that announce false capabilities.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eno_driver_netconf::dialect::DIALECTS;
use eno_driver_netconf::hello::{Hello, Profile};
use eno_driver_netconf::session::{Call, Session, SessionError};
use eno_driver_netconf::ssh::SshSession;
use eno_driver_netconf::text::Text;
use eno_driver_netconf::transaction::{RunContext, TransactionError};
use eno_sbi::{Reconciled, Work};
use eno_schemas::{Decision, FabricDesired};
use eno_simulator::{ConfirmedCommit, Fault, RejectEdit, Tag};
use futures::future::BoxFuture;

use crate::common::{Bench, Part, applied_vlans, failed, on_switch, run_transaction};

/// A session with leaf1 that may announce other capabilities, and may end before or after one request.
struct UnreliableSession {
    session: Arc<Mutex<Option<SshSession>>>,
    hello: Hello,
    calls: AtomicUsize,
    cut: Option<(usize, When)>,
    /// Number of replies that were awaited in vain.
    waited: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The request does not arrive.
    Before,
    /// The device executes the request, and the reply does not arrive.
    After,
}

impl Session for UnreliableSession {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn call(&self, operation: Text) -> Call {
        let at = self.calls.fetch_add(1, Ordering::SeqCst);
        let session = Arc::clone(&self.session);
        let waited = Arc::clone(&self.waited);
        let lost = move || {
            waited.fetch_add(1, Ordering::SeqCst);
            Err(SessionError::Ended("cut".into()).into())
        };
        let cut = self.cut.filter(|(cut, _)| *cut == at).map(|(_, when)| when);
        if cut == Some(When::Before) {
            drop(session.lock().unwrap().take());
        }
        let Some(call) = session.lock().unwrap().as_ref().map(|session| session.call(operation)) else {
            return Box::pin(async move { lost() });
        };
        Box::pin(async move {
            let reply = call.await;
            if cut == Some(When::After) {
                drop(session.lock().unwrap().take());
                return lost();
            }
            reply
        })
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        let session = self.session.lock().unwrap();
        session.as_ref().map_or_else(|| Box::pin(async {}) as _, Session::ended)
    }
}

impl UnreliableSession {
    async fn connect(bench: &Bench, cut: Option<(usize, When)>) -> Self {
        let session = bench.connect().await;
        let hello = session.hello().clone();
        let session = Arc::new(Mutex::new(Some(session)));
        Self { session, hello, calls: AtomicUsize::new(0), cut, waited: Arc::default() }
    }

    /// Announces a further capability.
    fn announcing(mut self, capability: &str) -> Self {
        let all = self.hello.short_names().into_iter().map(|name| match name.strip_prefix("base:") {
            Some(version) => format!("urn:ietf:params:netconf:base:{version}"),
            None => format!("urn:ietf:params:netconf:capability:{name}"),
        });
        let more = format!("urn:ietf:params:netconf:capability:{capability}");
        let modules = self.hello.modules().map(str::to_owned);
        self.hello = Hello::new(all.chain(modules).chain([more]).collect::<Vec<_>>(), None);
        self
    }

    async fn run(&self, work: &Work, desired: &FabricDesired) -> Result<Reconciled, TransactionError> {
        let context = RunContext { may_be_pending: true, ..RunContext::default() };
        run_transaction(self, DIALECTS, work, desired, context).await.0
    }
}

/// A fabric whose switches support this version of confirmed commit.
async fn bench(confirmed_commit: ConfirmedCommit) -> Bench {
    Bench::with_capabilities(|capabilities| capabilities.confirmed_commit = confirmed_commit).await
}

fn states(bench: &Bench) -> [FabricDesired; 2] {
    let old = bench.desired_ports("leaf1", "100-105", &[("Ethernet1", "100-105"), ("Ethernet2", "100")]);
    let new = bench.desired_ports("leaf1", "103-110", &[("Ethernet1", "103-110"), ("Ethernet2", "")]);
    [old, new]
}

/// The VLANs of the switch, and those of both ports.
fn state(bench: &Bench) -> [String; 3] {
    let switch = bench.switch("leaf1");
    let (vlans, first) = on_switch(switch, "Ethernet1");
    [vlans, first, on_switch(switch, "Ethernet2").1]
}

const OLD: [&str; 3] = ["100-105", "100-105", "100"];
const NEW: [&str; 3] = ["103-110", "103-110", ""];

#[tokio::test]
async fn session_end_at_any_request_leaves_device_old_or_new() {
    for confirmed_commit in [ConfirmedCommit::V1_1, ConfirmedCommit::V1_0] {
        let mut bench = bench(confirmed_commit).await;
        let [old, new] = states(&bench);
        for holds in [false, true] {
            for when in [When::Before, When::After] {
                for at in 0.. {
                    bench.restart_driver();
                    assert_eq!(applied_vlans(&bench.settle("leaf1", &old).await).0, OLD[0]);
                    bench.restart_driver();
                    let case = format!("{confirmed_commit:?}, held: {holds}, {when:?} request {at}");
                    let session = UnreliableSession::connect(&bench, Some((at, when))).await;
                    let part = Part::new("leaf1", new.clone(), Duration::from_mins(5));
                    let work = if holds { part.work() } else { crate::common::work("leaf1", new.clone()) };
                    let mut phase = work.phase();
                    let deciding = async {
                        while phase.changed().await.is_ok() {
                            part.decide(Decision::Confirm);
                        }
                        std::future::pending::<()>().await;
                    };
                    let ended = tokio::select! {
                        ended = session.run(&work, &new) => ended,
                        () = deciding => unreachable!("it never ends"),
                    };
                    // After the loss of the session the transaction awaits at most one reply.
                    let waited = session.waited.load(Ordering::SeqCst);
                    assert!(waited <= 1, "{case}: waited for {waited} replies");
                    drop(session);
                    let now = state(&bench);
                    assert!(now == OLD || now == NEW, "{case}: {now:?}");
                    let done = match &ended {
                        Ok(_) => true,
                        Err(error) => {
                            let failure = error.failure();
                            assert!(failure.retryable && failure.unreachable, "{case}: {error}");
                            false
                        }
                    };
                    // The next process.
                    let settled = bench.settle("leaf1", &new).await;
                    assert_eq!(
                        (applied_vlans(&settled).0.as_str(), state(&bench)),
                        (NEW[0], NEW.map(String::from)),
                        "{case}"
                    );
                    assert!(!bench.switch("leaf1").is_pending(), "{case}");
                    if done {
                        assert!(at > 5, "{case}: it ended without many requests");
                        break;
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn device_with_false_capabilities_is_not_changed() {
    for lie in ["confirmed-commit:1.1", "validate:1.1", "candidate:1.0"] {
        let bench = Bench::with_capabilities(|capabilities| {
            capabilities.confirmed_commit = ConfirmedCommit::None;
            capabilities.validate = false;
            if lie.starts_with("candidate") {
                (capabilities.candidate, capabilities.writable_running) = (false, true);
            }
        })
        .await;
        let [_, new] = states(&bench);
        let session = UnreliableSession::connect(&bench, None).await.announcing(lie);
        assert!(Profile::of(&session.hello).is_some());
        let work = crate::common::work("leaf1", new.clone());
        let error = session.run(&work, &new).await.expect_err("it can't");
        assert!(!error.failure().unreachable && !error.to_string().is_empty(), "{lie}: {error}");
        assert_eq!(state(&bench), ["", "", ""], "{lie}: {error}");
    }
}

#[tokio::test]
async fn access_denied_is_reported_with_the_device_message() {
    let bench = bench(ConfirmedCommit::V1_1).await;
    let [old, new] = states(&bench);
    bench.settle("leaf1", &old).await;
    let denial = RejectEdit {
        tag: Some(Tag::AccessDenied),
        message: Some("user eno may not write /interfaces".into()),
        ..RejectEdit::default()
    };
    bench.switch("leaf1").inject(Fault::RejectEdit(denial));
    let denied = bench.reconcile("leaf1", new).await;
    let (reason, retryable, unreachable) = failed(&denied);
    assert!(reason.contains("user eno may not write /interfaces"), "{reason}");
    assert!(!retryable && !unreachable && denied.rejected.is_empty());
    assert_eq!(state(&bench), OLD);
    bench.switch("leaf1").inject(Fault::Clear {});
    assert_eq!(applied_vlans(&bench.settle("leaf1", &old).await).0, OLD[0]);
}

/// A foreign interface with a description.
const FOREIGN: &str = "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>Ethernet9</name>\
    <config><name>Ethernet9</name><description>theirs</description></config></interface></interfaces>";

#[tokio::test]
async fn candidate_with_foreign_changes_is_kept_and_remedy_is_named() {
    let bench = bench(ConfirmedCommit::V1_1).await;
    let [old, new] = states(&bench);
    bench.settle("leaf1", &old).await;
    let switch = bench.switch("leaf1");
    switch.inject(Fault::KeepCandidate {});
    let cut =
        Fault::Drop { operation: Some("validate".into()), when: eno_simulator::When::Before, times: Some(2) };
    switch.inject(cut);
    assert!(bench.reconcile("leaf1", new.clone()).await.wants_retry());
    let other = UnreliableSession::connect(&bench, None).await;
    let edit = format!("<edit-config><target><candidate/></target><config>{FOREIGN}</config></edit-config>");
    other.call(edit.into()).await.expect("it may edit");
    let refused = bench.reconcile("leaf1", new.clone()).await;
    let (reason, retryable, _) = failed(&refused);
    assert!(
        retryable && reason.contains("not this cluster's alone") && reason.contains("discard-changes"),
        "{reason}"
    );
    let candidate = "<get-config><source><candidate/></source></get-config>";
    assert!(other.call(candidate.into()).await.expect("a reply").contains("theirs"));
    other.call("<discard-changes/>".into()).await.expect("it may discard");
    assert_eq!(applied_vlans(&bench.settle("leaf1", &new).await).0, NEW[0]);
}
