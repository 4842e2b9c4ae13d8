//! Counts the writes that pass a proxy, and injects a fault at one of them.

use tokio::sync::watch;

/// A fault at a write. The process is the one that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process is killed before the write is sent.
    KilledBefore,
    /// The process is killed after the write took effect and before its answer came.
    KilledAfter,
    /// The API server refuses it with 409, as for a concurrent write.
    Conflict,
    /// The API server refuses it with 429 and `Retry-After: 1`.
    TooMany,
    /// The API server fails with 500; nothing was written.
    Internal,
    /// The write takes effect and is never answered; its connection stays open.
    Unanswered,
    /// The connection breaks before the write is sent.
    CutBefore,
    /// The connection breaks after the write took effect and before its answer came.
    CutAfter,
    /// From this write on, watches deliver nothing until the recovery; then they end with 410 Gone.
    Frozen,
    /// Mutant: the process removes the object's finalizer along with this write.
    EarlyFinalizerRemoval,
    /// Mutant: the process considers this written, and it is not.
    WriteLost,
    /// Mutant: the process writes a transition's status before it publishes the transition. It is killed in between.
    StatusBeforeOutbox,
}

impl Fault {
    /// The faults that the proxy of the API server injects.
    pub const OF_API: [Self; 7] = [
        Self::KilledBefore,
        Self::KilledAfter,
        Self::Conflict,
        Self::TooMany,
        Self::Internal,
        Self::Frozen,
        Self::Unanswered,
    ];
    /// The faults that the proxy of NATS injects.
    pub const OF_NATS: [Self; 4] = [Self::KilledBefore, Self::KilledAfter, Self::CutBefore, Self::CutAfter];

    /// Simulated bugs of the process itself, which the test must detect.
    pub const MUTANTS: [Self; 3] = [Self::EarlyFinalizerRemoval, Self::WriteLost, Self::StatusBeforeOutbox];

    /// Whether the fault kills the process.
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter | Self::StatusBeforeOutbox)
    }
}

/// What the proxy does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteAction {
    /// Forward it.
    Pass,
    /// Inject this fault; the proxy calls [`WriteCounter::record_injected`] afterwards.
    Inject(Fault),
    /// Drop it: the process counts as dead.
    Drop,
}

#[derive(Debug, Default)]
struct State {
    /// The counted writes.
    writes: Vec<String>,
    /// The armed fault and the number of its write.
    armed: Option<(usize, Fault)>,
    /// The write at which the fault was injected.
    injected: Option<String>,
    /// Whether messages of the killed process are dropped.
    dropping: bool,
    /// Whether watches are frozen.
    frozen: bool,
    /// How often all watches were ended.
    breaks: u64,
}

/// The state of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WatchState {
    pub(super) frozen: bool,
    pub(super) breaks: u64,
}

/// Counts writes, and injects a fault at one of them.
#[derive(Debug, Default)]
pub struct WriteCounter {
    state: watch::Sender<State>,
}

impl WriteCounter {
    /// Resets the count, and arms a fault at the nth write, counted from 1.
    pub fn arm(&self, injection: Option<(usize, Fault)>) {
        self.state.send_modify(|state| {
            state.writes.clear();
            state.armed = injection;
            state.injected = None;
        });
    }

    /// The writes since the counter was armed.
    pub fn writes(&self) -> Vec<String> {
        self.state.borrow().writes.clone()
    }

    /// Waits until the fault was injected, and returns its write.
    pub async fn until_injected(&self) -> String {
        let mut changes = self.state.subscribe();
        let state = changes.wait_for(|state| state.injected.is_some()).await.expect("the counter lives");
        state.injected.clone().unwrap_or_default()
    }

    /// The write at which the fault was injected.
    pub fn injected_at(&self) -> Option<String> {
        self.state.borrow().injected.clone()
    }

    /// Ends the fault: messages of a new process pass, and frozen watches end.
    pub fn release(&self) {
        self.state.send_modify(|state| {
            state.dropping = false;
            if std::mem::take(&mut state.frozen) {
                state.breaks += 1;
            }
        });
    }

    /// Counts a write.
    pub(super) fn write(&self, what: String) -> WriteAction {
        let mut action = WriteAction::Drop;
        self.state.send_modify(|state| {
            if state.dropping {
                return;
            }
            state.writes.push(what);
            let armed = state.armed.filter(|(at, _)| *at == state.writes.len());
            action = armed.map_or(WriteAction::Pass, |(_, fault)| WriteAction::Inject(fault));
            state.dropping = armed.is_some_and(|(_, fault)| fault.kills());
            state.frozen |= armed.is_some_and(|(_, fault)| fault == Fault::Frozen);
        });
        action
    }

    /// The action for a message that is no write.
    pub(super) fn other(&self) -> WriteAction {
        if self.state.borrow().dropping { WriteAction::Drop } else { WriteAction::Pass }
    }

    /// Records that the fault of the last [`WriteAction::Inject`] has happened.
    pub(super) fn record_injected(&self, what: String) {
        self.state.send_modify(|state| {
            state.armed = None;
            state.injected = Some(what);
        });
    }

    pub(super) fn watch_state(&self) -> WatchState {
        let state = self.state.borrow();
        WatchState { frozen: state.frozen, breaks: state.breaks }
    }

    /// Waits until the watch state differs.
    pub(super) async fn watch_state_changes(&self, from: WatchState) -> WatchState {
        let mut changes = self.state.subscribe();
        let now = |state: &State| WatchState { frozen: state.frozen, breaks: state.breaks };
        let state = changes.wait_for(|state| now(state) != from).await.expect("the counter lives");
        now(&state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_injected_once_at_its_write() {
        let counter = WriteCounter::default();
        counter.arm(Some((2, Fault::Conflict)));
        let actions: Vec<_> = ["a", "b", "c"].map(|what| counter.write(what.to_owned())).into();
        assert_eq!(actions, [WriteAction::Pass, WriteAction::Inject(Fault::Conflict), WriteAction::Pass]);
        counter.record_injected("b".to_owned());
        assert_eq!(counter.injected_at().as_deref(), Some("b"));
        assert_eq!(counter.writes(), ["a", "b", "c"]);
        counter.arm(None);
        assert_eq!((counter.writes().len(), counter.injected_at()), (0, None));
    }

    #[test]
    fn killed_process_writes_nothing_more() {
        let counter = WriteCounter::default();
        counter.arm(Some((1, Fault::KilledBefore)));
        assert_eq!(counter.write("a".to_owned()), WriteAction::Inject(Fault::KilledBefore));
        assert_eq!((counter.write("b".to_owned()), counter.other()), (WriteAction::Drop, WriteAction::Drop));
        counter.release();
        assert_eq!((counter.write("c".to_owned()), counter.other()), (WriteAction::Pass, WriteAction::Pass));
        assert_eq!(counter.writes(), ["a", "c"]);
    }

    #[test]
    fn frozen_watches_break_when_unfrozen() {
        let counter = WriteCounter::default();
        let before = counter.watch_state();
        counter.arm(Some((1, Fault::Frozen)));
        counter.write("a".to_owned());
        assert!(counter.watch_state().frozen);
        counter.release();
        assert_eq!(counter.watch_state(), WatchState { frozen: false, breaks: before.breaks + 1 });
    }
}
