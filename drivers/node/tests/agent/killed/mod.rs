//! The program is killed where it changes something, before that is sent and after it took effect but before the
//! answer: it ends as if nothing had happened, and leaves nothing behind.

mod proxy;
mod scene;
mod tracer;

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

use eno_schemas::{Applied, Outcome, Report};
use tokio::sync::watch;

use self::proxy::Proxy;
use self::scene::{Found, Scene, Untraced, stages};
use self::tracer::Traced;

/// Asks for all points.
const ALL: &str = "ENO_CRASH_ALL";
/// Asks for those whose description, such as `Before change 7 `, contains its value.
const ONLY: &str = "ENO_CRASH_ONLY";
/// Changes that the program dies of, unless all are asked for.
const SLICE: usize = 3;
/// What [`stages`] are about.
const STAGES: [&str; 5] = ["create", "change", "take from pods", "give to pods", "delete"];
/// How long a life may take.
const LIFE: Duration = Duration::from_mins(4);
/// How long what is known may take to come.
const SETTLED: Duration = Duration::from_secs(30);

/// When the program dies at a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Before,
    After,
}

/// A death in each stage that has so many changes: at the change of this number, the first being 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Death {
    place: &'static str,
    at: usize,
    when: When,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} ", self.when, self.place, self.at)
    }
}

/// What a stage's changes were so far.
#[derive(Debug, Default)]
struct Seen {
    changes: Vec<String>,
    death: Option<Death>,
    /// It is about to die.
    met: bool,
    /// It is as good as dead: nothing comes of it any more.
    struck: bool,
}

impl Seen {
    /// Takes a change in; tells when the program is to die of it.
    fn meets(&mut self, change: String) -> Option<When> {
        self.changes.push(change);
        let death = self.death.filter(|death| death.at == self.changes.len())?;
        self.met = true;
        Some(death.when)
    }
}

/// How a stage ended.
#[derive(Debug)]
struct End {
    found: Found,
    /// What the program said is there.
    told: Applied,
    changes: Vec<String>,
    struck: bool,
    /// What was there when it was dead of the first change of all.
    at_death: Option<Found>,
}

/// Lives of the program in a scene.
struct Lives<'a, Start> {
    scene: &'a Scene,
    seen: watch::Sender<Seen>,
    /// Starts the program; it ends when that is dropped.
    start: Start,
    sequence: u64,
}

impl<Program, Start: Fn() -> Program> Lives<'_, Start> {
    /// Goes through the stages. Ends that are known are waited for.
    async fn live(&mut self, death: Option<Death>, known: &[End]) -> Vec<End> {
        let mut ends = Vec::new();
        let mut program = None;
        for (stage, desired) in stages().into_iter().enumerate() {
            self.sequence += 1;
            let sequence = self.sequence;
            // What is refused for now is tried again.
            let done = |report: &Report| {
                report.generation.sequence == sequence
                    && report.outcome == Outcome::Applied
                    && !report.rejected.iter().any(|rejected| rejected.retryable)
            };
            self.seen.send_replace(Seen { death, ..Seen::default() });
            self.scene.command(sequence, desired).await;
            let alive = program.take().unwrap_or_else(&self.start);
            let mut seen = self.seen.subscribe();
            let mut report = tokio::select! {
                report = self.scene.report(done) => Some(report),
                struck = seen.wait_for(|seen| seen.struck) => { struck.unwrap(); None }
            };
            // When it has reported it is not to die any more, unless it is about to.
            self.seen.send_modify(|seen| seen.death = None);
            let mut at_death = None;
            if seen.borrow_and_update().met {
                seen.wait_for(|seen| seen.struck).await.unwrap();
                drop(alive);
                if let (0, Some(Death { at: 1, when, .. })) = (stage, death) {
                    let nothing = known.last().map(|end| &end.found);
                    at_death = Some(self.until(nothing.filter(|_| when == When::Before)).await);
                }
                program = Some((self.start)());
            } else {
                program = Some(alive);
            }
            if report.is_none() {
                report = Some(self.scene.report(done).await);
            }
            let Seen { changes, struck, .. } = self.seen.send_replace(Seen::default());
            let Report { applied, rejected, .. } = report.unwrap();
            assert!(rejected.is_empty(), "{rejected:?}");
            let told = scene::steady(applied.unwrap());
            let found = self.until(known.get(stage).map(|end| &end.found)).await;
            ends.push(End { found, told, changes, struck, at_death });
        }
        ends
    }

    /// What is there, in the end what is known if that comes.
    async fn until(&self, known: Option<&Found>) -> Found {
        let begun = Instant::now();
        loop {
            let found = self.scene.found().await;
            if known.is_none_or(|known| *known == found) || begun.elapsed() > SETTLED {
                return found;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Dies at as many changes as are asked for, `slice` unless others are. How it ended undisturbed, and each time.
    async fn die(&mut self, place: &'static str, slice: usize) -> (Vec<End>, Vec<(Death, Vec<End>)>) {
        let begun = Instant::now();
        let before = self.scene.found().await;
        let known = self.live(None, &[]).await;
        same("nothing is wanted any more", &known[known.len() - 1].found, &before);
        let compare = |how: &str, ends: &[End]| {
            for ((end, known), stage) in ends.iter().zip(&known).zip(STAGES) {
                same(&format!("{how} in the stage {stage}"), &end.found, &known.found);
                assert_eq!(end.told, known.told, "{how} in the stage {stage}");
            }
        };
        compare("undisturbed, for the second time,", &self.live(None, &known).await);
        let changes: Vec<usize> = known.iter().map(|end| end.changes.len()).collect();
        assert!(changes.iter().all(|changes| *changes > 0), "{changes:?}");
        let most = changes.iter().copied().max().unwrap_or_default();
        let mut lives = Vec::new();
        for death in tried(place, most, slice) {
            let live = tokio::time::timeout(LIFE, self.live(Some(death), &known)).await;
            let ends = live.unwrap_or_else(|_| panic!("killed {death}: it has no end"));
            let of: Vec<_> = ends.iter().map(|end| end.changes.get(death.at - 1)).collect();
            compare(&format!("killed {death}(of {of:?})"), &ends);
            lives.push((death, ends));
        }
        let struck: usize = lives.iter().map(|(_, ends)| ends.iter().filter(|end| end.struck).count()).sum();
        let (lived, all, seconds) = (lives.len(), 2 * most, begun.elapsed().as_secs());
        say(&format!(
            "{place}: {changes:?} undisturbed, {lived} of {all} lives, {struck} deaths, {seconds} s"
        ));
        if lived < all {
            say(&format!("{ALL}=1 has it die at each {place}"));
        }
        (known, lives)
    }
}

/// Deaths that the environment asks for, else at so many changes, spread over all.
fn tried(place: &'static str, most: usize, slice: usize) -> Vec<Death> {
    let at = |at| [When::Before, When::After].map(|when| Death { place, at, when });
    let all = (1..=most).flat_map(at);
    if let Ok(only) = std::env::var(ONLY) {
        return all.filter(|death| death.to_string().contains(&only)).collect();
    }
    if slice >= most || std::env::var_os(ALL).is_some_and(|value| value == "1") {
        return all.collect();
    }
    (0..slice).flat_map(|n| at(1 + n * most / slice)).collect()
}

/// Compares; what is different is told, not all.
#[track_caller]
fn same(when: &str, found: &Found, known: &Found) {
    let more: Vec<&String> = found.difference(known).collect();
    let less: Vec<&String> = known.difference(found).collect();
    assert!(more.is_empty() && less.is_empty(), "{when}: too much: {more:#?}, missing: {less:#?}");
}

/// Past the capture of tests' output: what was not run is never silent.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs it on a thread whose sockets and children are in the namespace of a node.
fn on_a_node<F: Future<Output = ()>>(run: impl FnOnce(Scene) -> F + Send + 'static) {
    let inside = std::thread::spawn(move || {
        let node = Scene::enter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { run(Scene::set(node).await).await });
    });
    inside.join().unwrap();
}

#[test]
#[ignore = "needs root: network namespaces"]
fn killed_at_any_transaction_it_ends_alike() {
    on_a_node(async |scene| {
        let seen = watch::Sender::default();
        let socket = scene.beside_the_database("proxy.sock");
        let _proxy = Proxy::start(&socket, &scene.database(), &seen);
        let start = || Untraced::start(scene.agent(&socket));
        let mut lives = Lives { scene: &scene, seen, start, sequence: 0 };
        lives.die("transaction", usize::MAX).await;
    });
}

#[test]
#[ignore = "needs root: network namespaces"]
fn killed_at_any_change_of_the_kernel_it_ends_alike() {
    on_a_node(async |scene| {
        let seen = watch::Sender::default();
        let start = || Traced::start(&scene.agent(&scene.database()), seen.clone());
        let mut lives = Lives { scene: &scene, seen: seen.clone(), start, sequence: 0 };
        let (known, lives) = lives.die("change", SLICE).await;
        let changes: String = known.iter().flat_map(|end| &end.changes).map(String::as_str).collect();
        for what in
            ["new link", "set link", "new address", "new route", "new rule", "delete link", "write", "ioctl"]
        {
            assert!(changes.contains(what), "no {what} was seen: {changes}");
        }
        let nothing = &known[known.len() - 1].found;
        for (death, ends) in lives {
            // It is struck where it is said to be.
            match (&ends[0].at_death, death.when) {
                (Some(there), When::Before) => same(&format!("killed {death}"), there, nothing),
                (Some(there), When::After) => assert_ne!(there, nothing, "killed {death}"),
                (None, _) => {}
            }
        }
    });
}
