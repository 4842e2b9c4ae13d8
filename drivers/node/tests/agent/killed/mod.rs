//! The program is killed at its changes: before a change is sent, and after it took effect but before the answer. After
//! a restart it reaches the same state as undisturbed, and leaves nothing behind.

mod fixture;
mod probes;
mod proxy;
mod tracer;

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

use eno_schemas::{Applied, Outcome, Report};
use tokio::sync::watch;

use self::fixture::{AgentProcess, State, TestNode, stages};
use self::proxy::Proxy;
use self::tracer::TracedAgent;
use crate::ovs::fixture as ovs;

/// Environment variable: `1` kills the program at all changes.
const ALL: &str = "ENO_CRASH_ALL";
/// Environment variable: kills only at points whose description, such as `Before change 7 `, contains its value.
const ONLY: &str = "ENO_CRASH_ONLY";
/// Changes at which the program is killed, unless [`ALL`] is set.
const DEFAULT_KILLS: usize = 3;
/// Names of the [`stages`].
const STAGES: [&str; 5] = ["create", "change", "take from pods", "give to pods", "delete"];
/// Maximum time for all stages of one run.
const RUN_TIMEOUT: Duration = Duration::from_mins(4);
/// Maximum time until the expected state is observed.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// When the program is killed: before a change is sent, or after it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timing {
    Before,
    After,
}

/// A point at which the program is killed in each stage: at the change number `at`, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KillPoint {
    kind: &'static str,
    at: usize,
    timing: Timing,
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} ", self.timing, self.kind, self.at)
    }
}

/// The changes of a stage so far.
#[derive(Debug, Default)]
struct StageProgress {
    changes: Vec<String>,
    kill_point: Option<KillPoint>,
    /// True once the kill point is reached: the program is about to be killed.
    reached: bool,
    /// True once the program is killed, or can't take effect any more.
    killed: bool,
}

impl StageProgress {
    /// Records a change. Returns when the program is to be killed, if this is the kill point.
    fn record(&mut self, change: String) -> Option<Timing> {
        self.changes.push(change);
        let kill_point = self.kill_point.filter(|kill_point| kill_point.at == self.changes.len())?;
        self.reached = true;
        Some(kill_point.timing)
    }
}

/// The result of a stage.
#[derive(Debug)]
struct StageResult {
    state: State,
    /// The applied state that the program reported.
    applied: Applied,
    changes: Vec<String>,
    killed: bool,
    /// The state while the program was dead, if it was killed at the first change of the first stage.
    state_at_kill: Option<State>,
}

/// Runs of the program on a test node.
struct AgentRuns<'a, Start> {
    node: &'a TestNode,
    changes_seen: watch::Sender<StageProgress>,
    /// Starts the program, which ends when the returned value is dropped.
    start: Start,
    sequence: u64,
}

impl<Program, Start: Fn() -> Program> AgentRuns<'_, Start> {
    /// Runs the program through the stages, and waits for the expected states.
    async fn run_stages(
        &mut self,
        kill_point: Option<KillPoint>,
        expected: &[StageResult],
    ) -> Vec<StageResult> {
        let mut results = Vec::new();
        let mut program = None;
        for (stage, desired) in stages().into_iter().enumerate() {
            self.sequence += 1;
            let sequence = self.sequence;
            // Temporary rejections are retried.
            let done = |report: &Report| {
                report.generation.sequence == sequence
                    && report.outcome == Outcome::Applied
                    && !report.rejected.iter().any(|rejected| rejected.retryable)
            };
            self.changes_seen.send_replace(StageProgress { kill_point, ..StageProgress::default() });
            self.node.command(sequence, desired).await;
            let alive = program.take().unwrap_or_else(&self.start);
            let mut changes_seen = self.changes_seen.subscribe();
            let mut report = tokio::select! {
                report = self.node.report(done) => Some(report),
                killed = changes_seen.wait_for(|changes_seen| changes_seen.killed) => { killed.unwrap(); None }
            };
            // After its report it is not killed any more, unless the kill point is reached already.
            self.changes_seen.send_modify(|changes_seen| changes_seen.kill_point = None);
            let mut state_at_kill = None;
            if changes_seen.borrow_and_update().reached {
                changes_seen.wait_for(|changes_seen| changes_seen.killed).await.unwrap();
                drop(alive);
                if let (0, Some(KillPoint { at: 1, timing, .. })) = (stage, kill_point) {
                    let empty = expected.last().map(|result| &result.state);
                    state_at_kill =
                        Some(self.settled_state(empty.filter(|_| timing == Timing::Before)).await);
                }
                program = Some((self.start)());
            } else {
                program = Some(alive);
            }
            if report.is_none() {
                report = Some(self.node.report(done).await);
            }
            let StageProgress { changes, killed, .. } =
                self.changes_seen.send_replace(StageProgress::default());
            let Report { applied, rejected, .. } = report.unwrap();
            assert!(rejected.is_empty(), "{rejected:?}");
            let applied = fixture::without_random_macs(applied.unwrap());
            let state = self.settled_state(expected.get(stage).map(|result| &result.state)).await;
            results.push(StageResult { state, applied, changes, killed, state_at_kill });
        }
        results
    }

    /// The observed state, once it is the expected one or time is up.
    async fn settled_state(&self, expected: Option<&State>) -> State {
        let begun = Instant::now();
        loop {
            let state = self.node.state().await;
            if expected.is_none_or(|expected| *expected == state) || begun.elapsed() > SETTLE_TIMEOUT {
                return state;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Runs the program undisturbed, then once for each kill point. `kills`: the number of changes at which it is
    /// killed by default. Returns the results of the undisturbed run and of the others.
    async fn run_all(
        &mut self,
        kind: &'static str,
        kills: usize,
    ) -> (Vec<StageResult>, Vec<(KillPoint, Vec<StageResult>)>) {
        let begun = Instant::now();
        let before = self.node.state().await;
        let expected = self.run_stages(None, &[]).await;
        assert_same_state("nothing is wanted any more", &expected[expected.len() - 1].state, &before);
        let compare = |how: &str, results: &[StageResult]| {
            for ((result, expected), stage) in results.iter().zip(&expected).zip(STAGES) {
                assert_same_state(&format!("{how} in the stage {stage}"), &result.state, &expected.state);
                assert_eq!(result.applied, expected.applied, "{how} in the stage {stage}");
            }
        };
        compare("undisturbed, for the second time,", &self.run_stages(None, &expected).await);
        let changes: Vec<usize> = expected.iter().map(|result| result.changes.len()).collect();
        assert!(changes.iter().all(|changes| *changes > 0), "{changes:?}");
        let most = changes.iter().copied().max().unwrap_or_default();
        let mut runs = Vec::new();
        for kill_point in kill_points(kind, most, kills) {
            let run = tokio::time::timeout(RUN_TIMEOUT, self.run_stages(Some(kill_point), &expected)).await;
            let results = run.unwrap_or_else(|_| panic!("killed {kill_point}: it has no end"));
            let of: Vec<_> = results.iter().map(|result| result.changes.get(kill_point.at - 1)).collect();
            compare(&format!("killed {kill_point}(of {of:?})"), &results);
            runs.push((kill_point, results));
        }
        let killed: usize =
            runs.iter().map(|(_, results)| results.iter().filter(|result| result.killed).count()).sum();
        let (ran, all, seconds) = (runs.len(), 2 * most, begun.elapsed().as_secs());
        print_uncaptured(&format!(
            "{kind}: {changes:?} undisturbed, {ran} of {all} lives, {killed} deaths, {seconds} s"
        ));
        if ran < all {
            print_uncaptured(&format!("{ALL}=1 has it die at each {kind}"));
        }
        (expected, runs)
    }
}

/// The kill points that the environment asks for, else those at `kills` changes, spread evenly.
fn kill_points(kind: &'static str, most: usize, kills: usize) -> Vec<KillPoint> {
    let at = |at| [Timing::Before, Timing::After].map(|timing| KillPoint { kind, at, timing });
    let all = (1..=most).flat_map(at);
    if let Ok(only) = std::env::var(ONLY) {
        return all.filter(|kill_point| kill_point.to_string().contains(&only)).collect();
    }
    if kills >= most || std::env::var_os(ALL).is_some_and(|value| value == "1") {
        return all.collect();
    }
    (0..kills).flat_map(|n| at(1 + n * most / kills)).collect()
}

/// Compares two states, and prints only the differences.
#[track_caller]
fn assert_same_state(case: &str, state: &State, expected: &State) {
    let more: Vec<&String> = state.difference(expected).collect();
    let less: Vec<&String> = expected.difference(state).collect();
    assert!(more.is_empty() && less.is_empty(), "{case}: too much: {more:#?}, missing: {less:#?}");
}

/// Prints past the capture of test output, so that left-out runs are always visible.
fn print_uncaptured(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs a test on a thread whose sockets and children are in the namespace of a node.
fn in_a_node<F: Future<Output = ()>>(run: impl FnOnce(ovs::Node) -> F + Send + 'static) {
    let inside = std::thread::spawn(move || {
        let switch = TestNode::enter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(switch));
    });
    inside.join().unwrap();
}

/// The same with all that a node has.
fn on_a_node<F: Future<Output = ()>>(run: impl FnOnce(TestNode) -> F + Send + 'static) {
    in_a_node(async move |switch| run(TestNode::start(switch).await).await);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn agent_killed_at_any_transaction_reaches_the_same_state() {
    on_a_node(async |node| {
        let changes_seen = watch::Sender::default();
        let socket = node.beside_the_database("proxy.sock");
        let _proxy = Proxy::start(&socket, &node.database(), &changes_seen);
        let start = || AgentProcess::start(node.agent(&socket));
        let mut runs = AgentRuns { node: &node, changes_seen, start, sequence: 0 };
        runs.run_all("transaction", usize::MAX).await;
    });
}

#[test]
#[ignore = "needs root: network namespaces"]
fn agent_killed_at_any_kernel_change_reaches_the_same_state() {
    on_a_node(async |node| {
        let changes_seen = watch::Sender::default();
        let start = || TracedAgent::start(&node.agent(&node.database()), changes_seen.clone());
        let mut runs = AgentRuns { node: &node, changes_seen: changes_seen.clone(), start, sequence: 0 };
        let (expected, runs) = runs.run_all("change", DEFAULT_KILLS).await;
        let changes: String =
            expected.iter().flat_map(|result| &result.changes).map(String::as_str).collect();
        for what in [
            "new link",
            "set link",
            "new address",
            "new route",
            "new rule",
            "delete link",
            "write",
            "ioctl",
            "set offloads",
            "rename file",
            "remove file",
            "make folder",
        ] {
            assert!(changes.contains(what), "no {what} was seen: {changes}");
        }
        let empty = &expected[expected.len() - 1].state;
        for (kill_point, results) in runs {
            // The kill takes effect before or after the change, as its timing says.
            match (&results[0].state_at_kill, kill_point.timing) {
                (Some(at_kill), Timing::Before) => {
                    assert_same_state(&format!("killed {kill_point}"), at_kill, empty);
                }
                (Some(at_kill), Timing::After) => assert_ne!(at_kill, empty, "killed {kill_point}"),
                (None, _) => {}
            }
        }
    });
}
