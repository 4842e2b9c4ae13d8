//! Runs all checks.

use std::any::Any;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use eno_sbi::{Driver as _, PARTS};
use futures::{StreamExt as _, stream};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::{ProgramFixture, Programs, contract};
use crate::holding::can_hold;
use crate::{DriverFixture as _, checks, hosted, parts};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The check.
    pub name: &'static str,
    /// How it ended.
    pub outcome: CheckOutcome,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The driver passes it.
    Passed,
    /// It is not for this driver, for this reason.
    Skipped(String),
    /// The finding.
    Failed(String),
}

/// What to check.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The driver's name.
    pub driver: String,
    /// The fixture's program.
    pub fixture: PathBuf,
    /// Only checks whose name contains this.
    pub only: String,
    /// How many checks run at once, each with a fixture of its own.
    pub jobs: usize,
}

type Check = fn(ProgramFixture) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! checks {
    ($(contract::$contract:ident,)+ $(checks::$check:ident,)+ $(hosted::$hosted:ident,)+ $(parts::$parts:ident,)+) => {
        [
            $((stringify!($contract), |fixture| Box::pin(contract::$contract(fixture))),)+
            $((stringify!($check), |fixture| Box::pin(async move { checks::$check(&fixture).await })),)+
            $((stringify!($hosted), |fixture| Box::pin(hosted::$hosted(Arc::new(fixture)))),)+
            $((stringify!($parts), |fixture| Box::pin(with_parts(fixture, parts::$parts))),)+
            ("hold_is_reported_and_decided_through_the_host", |fixture| Box::pin(hold(fixture))),
        ]
    };
}

/// All but those that look into the driver's process: `superseded_command_writes_nothing` has an older command worked
/// on, which no stream has; `interrupted_reconcile_converges_when_repeated` drops a future after each step, instead of
/// which a process is killed; the checks of [`holding`](crate::holding) follow the phase of a `Work`.
const CHECKS: [(&str, Check); 18] = checks![
    contract::presence_and_ownership_last_as_long_as_the_driver,
    contract::target_of_another_instance_is_left_alone,
    contract::invalid_commands_are_refused,
    contract::forgotten_target_may_return,
    contract::failure_is_retried_without_a_new_command,
    contract::external_change_is_noticed,
    checks::apply_converges_and_preserves_foreign_config,
    checks::reconcile_without_drift_writes_nothing,
    checks::reconcile_removes_undesired_items,
    checks::reconcile_repairs_external_edits,
    checks::unreachable_target_is_reported_and_retried,
    checks::refused_item_is_rejected_and_rest_applied,
    hosted::repeated_and_older_commands_change_nothing,
    hosted::killed_host_is_resumed_by_the_next,
    parts::head_waits_for_its_parts,
    parts::lost_part_is_asked_for,
    parts::newest_command_counts_whole_or_in_parts,
];

async fn hold(fixture: ProgramFixture) {
    fixture.learn_capabilities().await;
    if can_hold(&fixture.driver()) {
        hosted::hold_is_reported_and_decided_through_the_host(Arc::new(fixture)).await;
    } else {
        fixture.skip("the driver has not announced the capability hold");
    }
}

async fn with_parts(fixture: ProgramFixture, check: impl AsyncFnOnce(Arc<ProgramFixture>)) {
    fixture.learn_capabilities().await;
    if fixture.driver().identity().capabilities.iter().any(|one| one == PARTS) {
        check(Arc::new(fixture)).await;
    } else {
        fixture.skip("the driver has not announced the capability parts");
    }
}

impl Suite {
    /// Runs the checks until `stop`. `tell` gets their results in order. Panics are findings, so the caller should install
    /// a panic hook that prints nothing.
    pub async fn run(
        &self,
        stop: &CancellationToken,
        mut tell: impl FnMut(&CheckResult),
    ) -> Vec<CheckResult> {
        let programs = Programs::new(&self.driver, &self.fixture);
        let checks = CHECKS.into_iter().filter(|(name, _)| name.contains(&self.only));
        let mut running =
            stream::iter(checks.map(|(name, check)| run(name, check, programs.clone(), stop.clone())))
                .buffered(self.jobs.max(1));
        let mut results = Vec::new();
        while let Some(result) = running.next().await {
            tell(&result);
            results.push(result);
        }
        results
    }
}

async fn run(name: &'static str, check: Check, programs: Programs, stop: CancellationToken) -> CheckResult {
    let runtime = tokio::runtime::Handle::current();
    // Requests to fixtures block.
    let checking = tokio::task::spawn_blocking(move || {
        let fixture = ProgramFixture::start(&programs);
        runtime.block_on(async {
            tokio::select! {
                () = check(fixture.clone()) => {}
                () = stop.cancelled() => panic!("stopped"),
            }
        });
        fixture.skipped()
    });
    let outcome = match checking.await.map_err(JoinError::try_into_panic) {
        Ok(None) => CheckOutcome::Passed,
        Ok(Some(why)) => CheckOutcome::Skipped(why),
        Err(Ok(panic)) => CheckOutcome::Failed(message(&*panic)),
        Err(Err(error)) => CheckOutcome::Failed(error.to_string()),
    };
    CheckResult { name, outcome }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("the check broke off without a message")
        .to_owned()
}
