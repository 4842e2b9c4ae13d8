//! Counts what passes by a proxy, and says at which of it something happens.

use tokio::sync::watch;

/// What happens at a write. The process is the one that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process is killed before the write is sent.
    KilledBefore,
    /// The process is killed after the write took effect and before its answer came.
    KilledAfter,
    /// The API server refuses it with 409: somebody else was faster.
    Conflict,
    /// The API server refuses it with 429 and asks to come again in a second.
    TooMany,
    /// The API server fails with 500; nothing was written.
    Internal,
    /// It takes effect and is never answered; its connection stays open.
    Unanswered,
    /// The connection breaks before the write is sent.
    CutBefore,
    /// The connection breaks after the write took effect and before its answer came.
    CutAfter,
    /// From this write on, watches say nothing more until the process is well again; then they break with 410 Gone.
    Frozen,
    /// What a wrong process would do: it takes the object's finalizer off along with this write.
    FinalizerEarly,
    /// What a wrong process would do: it takes this for written, and it is not.
    Swallowed,
    /// What a wrong process would do: it has written the status of a transition that it was to publish first. It is
    /// killed before it does.
    StatusFirst,
}

impl Fault {
    /// Those that the proxy of the API server knows.
    pub const OF_API: [Self; 7] = [
        Self::KilledBefore,
        Self::KilledAfter,
        Self::Conflict,
        Self::TooMany,
        Self::Internal,
        Self::Frozen,
        Self::Unanswered,
    ];
    /// Those that the proxy of NATS knows.
    pub const OF_NATS: [Self; 4] = [Self::KilledBefore, Self::KilledAfter, Self::CutBefore, Self::CutAfter];

    /// Those that a process does itself, and that have to be noticed.
    pub const MUTANTS: [Self; 3] = [Self::FinalizerEarly, Self::Swallowed, Self::StatusFirst];

    /// Whether the process dies of it.
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter | Self::StatusFirst)
    }
}

/// What is to be done with something that passes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteAction {
    /// It passes.
    Pass,
    /// This happens at it; [`WriteCounter::injected`] is called when it has.
    Inject(Fault),
    /// The process is as good as dead: nothing of it passes any more.
    Held,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<String>,
    armed: Option<(usize, Fault)>,
    injected: Option<String>,
    held: bool,
    frozen: bool,
    /// How often all watches were broken off.
    breaks: u64,
}

/// The watch_state for watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WatchState {
    pub(super) frozen: bool,
    pub(super) breaks: u64,
}

/// Counts writes, and strikes at one of them.
#[derive(Debug, Default)]
pub struct WriteCounter {
    state: watch::Sender<State>,
}

impl WriteCounter {
    /// Begins to count at 0; at the write of this number, the first being 1, this happens.
    pub fn arm(&self, injection: Option<(usize, Fault)>) {
        self.state.send_modify(|state| {
            state.writes.clear();
            state.armed = injection;
            state.injected = None;
        });
    }

    /// The writes since it was armed.
    pub fn writes(&self) -> Vec<String> {
        self.state.borrow().writes.clone()
    }

    /// Waits until it has injected, and says at which write.
    pub async fn until_injected(&self) -> String {
        let mut changes = self.state.subscribe();
        let state = changes.wait_for(|state| state.injected.is_some()).await.expect("the counter lives");
        state.injected.clone().unwrap_or_default()
    }

    /// At which write it has injected.
    pub fn injected_at(&self) -> Option<String> {
        self.state.borrow().injected.clone()
    }

    /// All is well again: a process that was held is dead and another may come; watches that froze break off.
    pub fn release(&self) {
        self.state.send_modify(|state| {
            state.held = false;
            if std::mem::take(&mut state.frozen) {
                state.breaks += 1;
            }
        });
    }

    /// Something is written.
    pub(super) fn write(&self, what: String) -> WriteAction {
        let mut action = WriteAction::Held;
        self.state.send_modify(|state| {
            if state.held {
                return;
            }
            state.writes.push(what);
            let armed = state.armed.filter(|(at, _)| *at == state.writes.len());
            action = armed.map_or(WriteAction::Pass, |(_, fault)| WriteAction::Inject(fault));
            state.held = armed.is_some_and(|(_, fault)| fault.kills());
            state.frozen |= armed.is_some_and(|(_, fault)| fault == Fault::Frozen);
        });
        action
    }

    /// Something else passes.
    pub(super) fn other(&self) -> WriteAction {
        if self.state.borrow().held { WriteAction::Held } else { WriteAction::Pass }
    }

    /// What was to happen at the last write that a action of was asked has happened.
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

    /// Waits until the watch_state is another one.
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
    fn strikes_once_at_the_write_of_its_number() {
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
    fn nothing_passes_of_what_is_killed() {
        let counter = WriteCounter::default();
        counter.arm(Some((1, Fault::KilledBefore)));
        assert_eq!(counter.write("a".to_owned()), WriteAction::Inject(Fault::KilledBefore));
        assert_eq!((counter.write("b".to_owned()), counter.other()), (WriteAction::Held, WriteAction::Held));
        counter.release();
        assert_eq!((counter.write("c".to_owned()), counter.other()), (WriteAction::Pass, WriteAction::Pass));
        assert_eq!(counter.writes(), ["a", "c"]);
    }

    #[test]
    fn watches_break_off_when_the_frost_ends() {
        let counter = WriteCounter::default();
        let before = counter.watch_state();
        counter.arm(Some((1, Fault::Frozen)));
        counter.write("a".to_owned());
        assert!(counter.watch_state().frozen);
        counter.release();
        assert_eq!(counter.watch_state(), WatchState { frozen: false, breaks: before.breaks + 1 });
    }
}
