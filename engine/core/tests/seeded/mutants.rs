//! What an engine that is wrong would do: each of it has to be noticed, or the histories prove nothing.

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The finalizer is taken off as soon as an object is deleted.
    FinalizerEarly,
    /// The status is written before the outbox.
    StatusFirst,
    /// A new engine doesn't know what ready objects are made of.
    InputsForgotten,
    /// Drivers report what they were told and have not done.
    NothingDone,
    /// An object is taken as it was before, after it was seen as it is.
    OldSpec,
    /// Which command is the last is looked at when one is sent, and not when it arrives.
    CheckThenAct,
    /// A report counts for the last command, whichever it is on.
    GenerationIgnored,
}

impl Mutant {
    pub const ALL: [Self; 7] = [
        Self::FinalizerEarly,
        Self::StatusFirst,
        Self::NothingDone,
        Self::InputsForgotten,
        Self::OldSpec,
        Self::CheckThenAct,
        Self::GenerationIgnored,
    ];
}
