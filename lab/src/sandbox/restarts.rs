//! Restart backoff of exited processes.

use std::collections::BTreeMap;
use std::time::Duration;

use eno_control_plane::Exited;
use futures::future::pending;
use tokio::time::{Instant, sleep_until};

/// Exited processes, each with its restart time. The delay of a process doubles with each exit, and is reset after it
/// has run for a while.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    last: BTreeMap<String, (Instant, Duration)>,
    due: Vec<(Instant, Exited)>,
}

impl Restarts {
    const INITIAL_DELAY: Duration = Duration::from_millis(200);
    /// A longer delay would be mistaken for slowness of the operator.
    const MAX_DELAY: Duration = Duration::from_secs(2);

    /// Adds an exited process, and returns its delay.
    pub(super) fn add(&mut self, exited: Exited, now: Instant) -> Duration {
        let delay = match self.last.get(&exited.name) {
            Some((at, delay)) if now.duration_since(*at) < Self::MAX_DELAY * 2 => {
                (*delay * 2).min(Self::MAX_DELAY)
            }
            _ => Self::INITIAL_DELAY,
        };
        self.last.insert(exited.name.clone(), (now, delay));
        self.due.push((now + delay, exited));
        delay
    }

    /// Waits for the next process to restart; pending while there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> Exited {
        let Some((index, at)) = self.first() else { return pending().await };
        sleep_until(at).await;
        self.due.swap_remove(index).1
    }

    fn first(&self) -> Option<(usize, Instant)> {
        let due = self.due.iter().enumerate().map(|(index, (at, _))| (index, *at));
        due.min_by_key(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that exits this many times right after its start.
    fn ends(restarts: &mut Restarts, times: usize, now: &mut Instant) -> Vec<Duration> {
        let end = |_| {
            let exited = Exited {
                name: "node1-agent".to_owned(),
                status: "exit status: 1".to_owned(),
                log_tail: String::new(),
            };
            let delay = restarts.add(exited, *now);
            *now += delay;
            delay
        };
        (0..times).map(end).collect()
    }

    #[test]
    fn restart_backoff_grows_to_two_seconds() {
        let delays = ends(&mut Restarts::default(), 8, &mut Instant::now());
        assert!(delays.is_sorted());
        assert_eq!(delays.first(), Some(&Restarts::INITIAL_DELAY));
        assert_eq!(delays.last(), Some(&Duration::from_secs(2)));
    }

    #[test]
    fn restart_backoff_is_per_process() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        ends(&mut restarts, 7, &mut now);
        restarts.due.clear();
        now -= Restarts::MAX_DELAY;
        ends(&mut restarts, 1, &mut now.clone());
        let engine = Exited { name: "engine".to_owned(), status: String::new(), log_tail: String::new() };
        assert_eq!(restarts.add(engine, now), Restarts::INITIAL_DELAY);
        let first = restarts.first().map(|(index, at)| (&*restarts.due[index].1.name, at));
        assert_eq!(first, Some(("engine", now + Restarts::INITIAL_DELAY)));
    }
}
