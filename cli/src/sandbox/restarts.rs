//! When processes that ended are started again.

use std::collections::BTreeMap;
use std::time::Duration;

use eno_control_plane::Exited;
use futures::future::pending;
use tokio::time::{Instant, sleep_until};

/// Processes that ended, each until it is due. The delay grows with each end, and is short again once the process has
/// run for a while. One that ends often delays no other.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    last: BTreeMap<String, (Instant, Duration)>,
    due: Vec<(Instant, Exited)>,
}

impl Restarts {
    const FIRST: Duration = Duration::from_millis(200);
    /// A longer delay would look like slowness of the operator.
    const LONGEST: Duration = Duration::from_secs(2);

    /// Takes in a process that ended, and returns its delay.
    pub(super) fn add(&mut self, exited: Exited, now: Instant) -> Duration {
        let delay = match self.last.get(&exited.name) {
            Some((at, delay)) if now.duration_since(*at) < Self::LONGEST * 2 => {
                (*delay * 2).min(Self::LONGEST)
            }
            _ => Self::FIRST,
        };
        self.last.insert(exited.name.clone(), (now, delay));
        self.due.push((now + delay, exited));
        delay
    }

    /// The next process to start again, once it is due; pending while there is none. Cancelled, it loses nothing.
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

    /// One that ends as soon as it is started, so many times.
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
    fn restarts_of_one_process_get_rarer_up_to_two_seconds() {
        let delays = ends(&mut Restarts::default(), 8, &mut Instant::now());
        assert!(delays.is_sorted());
        assert_eq!(delays.first(), Some(&Restarts::FIRST));
        assert_eq!(delays.last(), Some(&Duration::from_secs(2)));
    }

    #[test]
    fn a_process_that_ends_often_delays_no_other() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        ends(&mut restarts, 7, &mut now);
        restarts.due.clear();
        now -= Restarts::LONGEST;
        ends(&mut restarts, 1, &mut now.clone());
        let engine = Exited { name: "engine".to_owned(), status: String::new(), log_tail: String::new() };
        assert_eq!(restarts.add(engine, now), Restarts::FIRST);
        let first = restarts.first().map(|(index, at)| (&*restarts.due[index].1.name, at));
        assert_eq!(first, Some(("engine", now + Restarts::FIRST)));
    }
}
