//! Defects that the test injects. The histories must detect each of them.

/// An injected defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The finalizer is removed as soon as an object is deleted.
    EarlyFinalizerRemoval,
    /// The status is written before the outbox.
    StatusBeforeOutbox,
    /// A new engine does not get the `ready_inputs` of statuses.
    InputsForgotten,
    /// Drivers report commands as applied without applying them.
    ReportWithoutApply,
    /// An older state of an object is delivered after a newer one.
    StaleSpec,
    /// The position of the replaced command is not checked when a command is stored.
    CheckThenAct,
    /// A report counts for the last command, whatever its generation.
    GenerationIgnored,
}

impl Mutant {
    pub const ALL: [Self; 7] = [
        Self::EarlyFinalizerRemoval,
        Self::StatusBeforeOutbox,
        Self::ReportWithoutApply,
        Self::InputsForgotten,
        Self::StaleSpec,
        Self::CheckThenAct,
        Self::GenerationIgnored,
    ];
}
